//! A hook that waits: stops a low-level runtime at a moment that is known, for as long as wanted.

use crate::prelude::*;

pub struct Gate {
    dir: PathBuf,
}

/// A process stands before the gate, which opens when this value is dropped.
pub struct Reached {
    _fifo: File,
}

pub fn make_fifo(at: &Path) {
    nix::unistd::mkfifo(at, nix::sys::stat::Mode::S_IRWXU).unwrap();
}

/// A fifo can be opened for writing without waiting as soon as there is a reader.
fn try_open(fifo: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).custom_flags(libc::O_NONBLOCK);
    options.open(fifo)
}

/// Opens a fifo as soon as a process reads from it.
#[track_caller]
pub fn with_reader(fifo: &Path) -> File {
    let mut opened = None;
    until("somebody reads from the fifo", || {
        opened = try_open(fifo).ok();
        opened.is_some()
    });
    opened.unwrap()
}

impl Gate {
    pub fn new(dir: &Path) -> Gate {
        fs::create_dir_all(dir).unwrap();
        let dir = dir.to_owned();
        let gate = Gate { dir };
        make_fifo(&gate.fifo());
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
        let low = setup.runtime.display();
        let body = format!(
            "case \" $* \" in *' create '*|*' run '*) rm {armed} 2>/dev/null && {hook};; esac\n\
             exec {low} \"$@\""
        );
        script(&front, &body);
        setup.put_before(&front);
    }

    #[track_caller]
    pub fn reached(&self) -> Reached {
        let _fifo = with_reader(&self.fifo());
        Reached { _fifo }
    }
}

impl Drop for Gate {
    /// A test may have failed before it came so far.
    fn drop(&mut self) {
        drop(try_open(&self.fifo()));
    }
}
