//! A hook that waits: stops a low-level runtime at a moment that is known, for as long as wanted.

use crate::prelude::*;
use std::fs::OpenOptions;

pub struct Gate {
    dir: PathBuf,
}

/// A process stands before the gate, which opens when this value is dropped.
pub struct Reached {
    _fifo: File,
}

impl Gate {
    pub fn new(dir: &Path) -> Gate {
        fs::create_dir_all(dir).unwrap();
        let gate = Gate {
            dir: dir.to_owned(),
        };
        let mode = nix::sys::stat::Mode::from_bits_truncate(0o600);
        nix::unistd::mkfifo(&gate.fifo(), mode).unwrap();
        script(&gate.hook(), &format!("exec cat {}", gate.fifo().display()));
        gate
    }

    fn fifo(&self) -> PathBuf {
        self.dir.join("fifo")
    }

    /// A program that waits.
    pub fn hook(&self) -> PathBuf {
        self.dir.join("wait")
    }

    /// Puts it into a bundle.
    pub fn put(&self, bundle: &Bundle, kind: &str) {
        bundle.edit(|config| config["hooks"][kind] = json!([{"path": self.hook()}]));
    }

    /// Puts it before the low-level runtime, for one `create` or `run`: it is at work and has not begun.
    pub fn before(&self, setup: &Setup) {
        let front = self.dir.join(setup.low.name());
        let armed = self.dir.join("armed");
        fs::write(&armed, "").unwrap();
        let (armed, hook) = (armed.display(), self.hook().display().to_string());
        script(
            &front,
            &format!(
                "case \" $* \" in *' create '*|*' run '*) rm {armed} 2>/dev/null && {hook};; esac\n\
                 exec {} \"$@\"",
                setup.runtime.display()
            ),
        );
        setup.put_before(&front);
    }

    /// A fifo can be opened for writing without waiting as soon as there is a reader.
    fn try_open(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(libc::O_NONBLOCK);
        options.open(self.fifo())
    }

    #[track_caller]
    pub fn reached(&self) -> Reached {
        let mut opened = None;
        until("the hook is reached", || {
            opened = self.try_open().ok();
            opened.is_some()
        });
        Reached {
            _fifo: opened.unwrap(),
        }
    }
}

impl Drop for Gate {
    /// A test may have failed before it came so far.
    fn drop(&mut self) {
        drop(self.try_open());
    }
}
