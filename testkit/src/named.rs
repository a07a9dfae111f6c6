//! runmig as an engine finds it: `runmig-NAME`, which reads `/etc/runmig/NAME.toml`. Most engines
//! hand no environment on, so there is no other way in.

use crate::prelude::*;

pub struct Named {
    pub program: PathBuf,
    config: PathBuf,
}

impl Named {
    pub fn new(setup: &Setup) -> Named {
        let name = format!("test-{}", super::unique());
        let etc = Path::new("/etc/runmig");
        let config = etc.join(format!("{name}.toml"));
        // Another test may take the folder away in between.
        until("the configuration is there", || {
            fs::create_dir_all(etc).unwrap();
            fs::copy(setup.config(), &config).is_ok()
        });
        let program = setup.program(&format!("runmig-{name}"));
        symlink("runmig", &program).unwrap();
        Named { program, config }
    }

    /// An engine's configuration as it is shipped, with this program in it.
    pub fn shipped(&self, file: &str) -> String {
        let file = crate::repository().join(file);
        let text = fs::read_to_string(file).unwrap();
        let program = "/usr/local/bin/runmig";
        assert!(text.contains(program), "{text}");
        text.replace(program, self.program.to_str().unwrap())
    }

    /// The configuration of the set-up with a request for each container.
    pub fn ask(&self, setup: &Setup, request: &str) {
        let text = fs::read_to_string(setup.config()).unwrap();
        fs::write(&self.config, format!("{text}\n[request]\n{request}\n")).unwrap();
    }

    /// The configuration of the set-up, as it is now.
    pub fn configure_again(&self, setup: &Setup) {
        fs::copy(setup.config(), &self.config).unwrap();
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.config);
        // Only if it is empty: it was not there before.
        let _ = fs::remove_dir("/etc/runmig");
    }
}
