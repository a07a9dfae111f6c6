//! migctl doctor: each check is broken, sees that alone, and is well again after the repair.

mod breaking;
mod gpus;
mod machine;
mod output;
mod surroundings;
mod trial;

use testkit::prelude::*;

pub fn setup() -> Setup {
    Setup::on(Low::Runc, Machine::new("A100-80GB", 1))
}

/// The findings of one call.
pub struct Diagnosis {
    pub code: Option<i32>,
    pub items: Vec<Value>,
}

impl Diagnosis {
    pub fn of(setup: &Setup, arguments: &[&str]) -> Diagnosis {
        Diagnosis::by(&mut setup.plain(&setup.program("migctl")), arguments)
    }

    /// The findings in mounts and processes of its own, after a shell script there, for which `$0` is migctl.
    pub fn inside(setup: &Setup, script: &str, arguments: &[&str]) -> Diagnosis {
        let script = format!("{script}\nexec \"$0\" \"$@\"");
        let mut inside = setup.plain("unshare".as_ref());
        inside.args(["--mount", "--propagation=private", "--pid", "--fork"]);
        inside.args(["--kill-child", "--mount-proc", "sh", "-ec", &script]);
        Diagnosis::by(inside.arg(setup.program("migctl")), arguments)
    }

    /// The findings by a command that ends with migctl.
    pub fn by(migctl: &mut Command, arguments: &[&str]) -> Diagnosis {
        migctl.args(["doctor", "-o", "json"]).args(arguments);
        let ended = migctl.output().unwrap();
        let said: Value = serde_json::from_slice(&ended.stdout)
            .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&ended.stderr)));
        assert_eq!(said["apiVersion"], "runmig.dev/v1");
        assert_eq!(said["kind"], "Diagnosis");
        Diagnosis {
            code: ended.status.code(),
            items: said["items"].as_array().unwrap().clone(),
        }
    }

    /// Returns all ids.
    pub fn all_ids(&self) -> BTreeSet<String> {
        self.having(|_| true)
    }

    /// Returns the ids of the checks with a status.
    pub fn ids(&self, status: &str) -> BTreeSet<String> {
        self.having(|item| item["status"] == status)
    }

    fn having(&self, is: impl Fn(&Value) -> bool) -> BTreeSet<String> {
        let its = self.items.iter().filter(|item| is(item));
        let ids = its.map(|item| item["id"].as_str().unwrap());
        ids.map(str::to_owned).collect()
    }

    /// These checks and no others have a status.
    #[track_caller]
    pub fn has<const N: usize>(&self, status: &str, wanted: [&str; N]) {
        let wanted = wanted.map(str::to_owned).into();
        assert_eq!(self.ids(status), wanted, "{:?}", self.items);
    }

    /// Returns the text and the repair of the only item with an id that is not well.
    #[track_caller]
    pub fn of_id(&self, id: &str) -> (String, String) {
        let mut its = self.items.clone();
        its.retain(|item| item["id"] == id && item["status"] != "ok");
        let [item] = its.as_slice() else {
            panic!("{id}: {its:?}")
        };
        let text = |key: &str| item[key].as_str().unwrap_or_default().to_owned();
        (text("text"), text("repair"))
    }
}
