//! A device's name is a DNS label that tells GPU, profile and place.

use proptest::prelude::*;
use runmig_dra::resource_slices::{
    DeviceName, MAX_LABEL, MAX_NAME, PciAddress, counter_slice, device_slice, pool,
};
use runmig_lease::model::Placement;
use testkit::prelude::*;

pub fn is_label(text: &str) -> bool {
    let is_inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=MAX_LABEL).contains(&text.len())
        && text.bytes().all(is_inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn is_subdomain(text: &str) -> bool {
    text.len() <= MAX_NAME && text.split('.').all(is_label)
}

proptest! {
    #[test]
    fn parse_is_the_inverse(
        pci in "(0000|[0-9a-f]{4}|[1-9a-f][0-9a-f]{4,7}):[0-9a-f]{2}:[01][0-9a-f]\\.[0-7]",
        profile in "[1-9][0-9]?g\\.[1-9][0-9]{0,2}gb([+-](me|plus|dot|[a-z][a-z.]{0,4})){0,2}",
        start in 0u32..64,
        size in 1u32..64,
    ) {
        let address: PciAddress = pci.parse().unwrap();
        prop_assert_eq!(address.to_string(), pci);
        let placement = Placement { start, size };
        let Ok(name) = DeviceName::new(address, profile.parse().unwrap(), placement) else {
            return Ok(());
        };
        let text = name.to_string();
        prop_assert!(is_label(&text), "{}", text);
        prop_assert_eq!(text.parse::<DeviceName>().unwrap(), name);
    }

    /// A text that parses is the name of one device, so no two texts name the same.
    #[test]
    fn other_texts_are_refused(text in "gpu-[-0-9a-fA-F+]{9,14}-mig-[1-9]g-[0-9]{1,3}gb[-a-z0-9]{0,20}") {
        if let Ok(name) = text.parse::<DeviceName>() {
            prop_assert_eq!(name.to_string(), text);
        }
    }

    #[test]
    fn slices_of_nodes_differ(
        one in "[a-z]{1,3}(\\.[a-z]{1,3}){0,2}",
        other in "[a-z]{1,3}(\\.[a-z]{1,3}){0,2}",
        long in any::<bool>(),
    ) {
        prop_assume!(one != other);
        let node = |name: &str| match long {
            true => format!("{}{name}", format!("{}.", "n".repeat(59)).repeat(4)),
            false => name.to_owned(),
        };
        let (one, other) = (node(&one), node(&other));
        for name in [pool, |n: &str| counter_slice(n, 0), |n: &str| device_slice(n, 7)] {
            prop_assert!(is_subdomain(&name(&one)), "{}", name(&one));
            prop_assert_ne!(name(&one), name(&other));
        }
    }
}

#[test]
fn names_gpu_profile_and_place() {
    let name: DeviceName = "gpu-0000-07-00-0-mig-1g-24gb-plus-me-dot-all-9-3"
        .parse()
        .unwrap();
    assert_eq!(name.gpu(), "00000000:07:00.0".parse().unwrap());
    assert_eq!(name.profile().to_string(), "1g.24gb+me.all");
    assert_eq!(name.placement(), Placement { start: 9, size: 3 });
}

#[test]
fn errors_name_malformed_devices() {
    let on_gpu = "-4 -4-1-1 -04-1 -+4-1 -me-4-1 -plus-4-1 -dot-me-4-1 -4294967296-1";
    let on_gpu = on_gpu
        .split(' ')
        .map(|end| format!("gpu-0000-07-00-0-mig-1g-10gb{end}"));
    let others = [
        "",
        "gpu-0",
        "gpu-0000-07-00-0-mig-01g-10gb-4-1",
        "gpu-0000-7-00-0-mig-1g-10gb-4-1",
        "gpu-00000-07-00-0-mig-1g-10gb-4-1",
        "gpu-0000-07-20-0-mig-1g-10gb-4-1",
        "gpu-0000-07-00-8-mig-1g-10gb-4-1",
        "GPU-0000-07-00-0-mig-1g-10gb-4-1",
        "gpu-0-mig-1g10gb-19-0",
    ];
    for text in on_gpu.chain(others.map(str::to_owned)) {
        let error = text.parse::<DeviceName>().unwrap_err().line();
        let words = format!("cannot parse the device name \"{text}\": ");
        begins_with(&error, &words);
    }
}

#[test]
fn pool_is_not_the_node() {
    assert_eq!(pool("node-a"), "runmig.node-a");
    let longest = "n".repeat(246);
    assert_eq!(pool(&longest), format!("runmig.{longest}"));
    assert!(pool(&format!("{longest}n")).starts_with("runmig-long.nnn"));
}

#[test]
fn slices_sort_by_part() {
    let mut names: Vec<String> = (0..20).map(|part| device_slice("node", part)).collect();
    names.insert(0, counter_slice("node", 0));
    assert!(names.is_sorted(), "{names:?}");
}
