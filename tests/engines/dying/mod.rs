//! Everything that stands between an engine and its container dies, at moments that are known; and
//! a container that still runs never loses its slice, while one that is gone never keeps it.

mod collecting;
mod containerd;
mod containers;
mod creates;
mod hooks;
mod ids;
mod podman;
mod sharing;
mod victim;

/// Makes a test of every function, for every low-level runtime there is.
#[macro_export]
macro_rules! on_every_runtime {
    ($($name:ident),+ $(,)?) => {
        $crate::on_every_runtime! { @ runc Runc: $($name),+ }
        $crate::on_every_runtime! { @ crun Crun: $($name),+ }
        $crate::on_every_runtime! { @ new_runc NewRunc: $($name),+ }
    };
    (@ $module:ident $low:ident: $($name:ident),+) => {
        mod $module {
            $(#[test]
            fn $name() {
                if testkit::Low::$low.find().is_some() {
                    super::$name(&$crate::dying::victim::setup(testkit::Low::$low));
                }
            })+
        }
    };
}
