//! A check, as migctl names it: in its output, in `--only` and `--skip`, and in docs/migctl.md.

pub struct Check {
    /// `GROUP.NAME`, stable between versions.
    pub id: &'static str,
    /// The statement that holds where all is well.
    pub meaning: &'static str,
    /// The remedy in general; a finding has the command.
    pub remedy: &'static str,
}

impl Check {
    pub const fn new(id: &'static str, meaning: &'static str, remedy: &'static str) -> Check {
        Check {
            id,
            meaning,
            remedy,
        }
    }
}
