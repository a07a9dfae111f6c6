//! Every profile of every model.

use super::same_rows;

/// Names and ids of the User Guide's "Supported MIG Profiles", those that this
/// nvidia-smi knows of (it asks for the first ten of nvml.h's list).
const MODELS: [(&str, &str); 10] = [
    (
        "A100-40GB",
        "1g.5gb 19, 1g.5gb+me 20, 1g.10gb 15, 2g.10gb 14, 3g.20gb 9, 4g.20gb 5, 7g.40gb 0",
    ),
    (
        "A100-80GB",
        "1g.10gb 19, 1g.10gb+me 20, 1g.20gb 15, 2g.20gb 14, 3g.40gb 9, 4g.40gb 5, 7g.80gb 0",
    ),
    (
        "A30-24GB",
        "1g.6gb 14, 1g.6gb+me 21, 2g.12gb 5, 2g.12gb+me 6, 4g.24gb 0",
    ),
    (
        "H100-80GB",
        "1g.10gb 19, 1g.10gb+me 20, 1g.20gb 15, 2g.20gb 14, 3g.40gb 9, 4g.40gb 5, 7g.80gb 0",
    ),
    (
        "H100-NVL-94GB",
        "1g.12gb 19, 1g.12gb+me 20, 1g.24gb 15, 2g.24gb 14, 3g.47gb 9, 4g.47gb 5, 7g.94gb 0",
    ),
    (
        "GH200-96GB",
        "1g.12gb 19, 1g.12gb+me 20, 1g.24gb 15, 2g.24gb 14, 3g.48gb 9, 4g.48gb 5, 7g.96gb 0",
    ),
    (
        "H200-141GB",
        "1g.18gb 19, 1g.18gb+me 20, 1g.35gb 15, 2g.35gb 14, 3g.71gb 9, 4g.71gb 5, 7g.141gb 0",
    ),
    (
        "B200-180GB",
        "1g.23gb 19, 1g.23gb+me 20, 1g.45gb 15, 2g.45gb 14, 3g.90gb 9, 4g.90gb 5, 7g.180gb 0",
    ),
    (
        "GB200-186GB",
        "1g.23gb 19, 1g.23gb+me 20, 1g.47gb 15, 2g.47gb 14, 3g.93gb 9, 4g.93gb 5, 7g.186gb 0",
    ),
    (
        "RTX-PRO-6000-96GB",
        "1g.24gb 14, 1g.24gb+me 21, 2g.48gb 5, 4g.96gb 0",
    ),
];

#[test]
fn every_profile_can_be_created() {
    for (model, profiles) in MODELS {
        let smi = smi_on!(&format!("--gpu {model} --mig on"));
        let expected: Vec<&str> = profiles.split(", ").collect();
        let rows = smi.table("mig -lgip");
        let listed: Vec<String> = rows
            .iter()
            .map(|row| row.split(' ').skip(2).take(2).collect::<Vec<_>>().join(" "))
            .collect();
        same_rows(listed, &expected);
        for profile in expected {
            let (name, id) = profile.split_once(' ').unwrap();
            let said = smi.lines(&format!("mig -cgi {id} -C"));
            assert_eq!(said.len(), 2, "{model} {name}: {said:?}");
            assert!(
                said[0].ends_with(&format!("using profile MIG {name} (ID {id})")),
                "{model}: {said:?}"
            );
            let list = smi.lines("-L");
            assert_eq!(list.len(), 2, "{model} {name}: {list:?}");
            smi.ok("mig -dci");
            smi.ok("mig -dgi");
        }
        assert_eq!(smi.table("mig -lgip"), rows, "{model}");
    }
}
