//! `migctl explain` of a request for a seat, as JSON.

use super::*;

/// Two slices of one profile on one GPU differ by their place.
#[test]
fn tells_slices_of_gpu_apart() {
    let setup = on(Low::Runc, "none");
    let first = create(&setup, "3g.40gb", "3/4");
    let second = create(&setup, "3g.40gb", "1/2");
    let third = create(&setup, "3g.40gb", "1/4");
    let fourth = create(&setup, "3g.40gb", "1/8");
    assert_eq!(device(&setup, &first), device(&setup, &third));
    assert_eq!(device(&setup, &second), device(&setup, &fourth));
    let explain = ["explain", "3g.40gb", "--share", "1/8", "-o", "json"];
    let told = setup.json(&explain);
    let slices = told["alternatives"][0]["gpus"].as_array().unwrap().clone();
    assert_eq!(slices.len(), 2);
    for (id, seats, free) in [(&first, 2, 0), (&second, 2, MEMORY * 3 / 8)] {
        let place = &setup.lease(id)["migPlacement"];
        let mut its = slices.iter().filter(|on| on["migPlacement"] == *place);
        let on = its.next().unwrap();
        assert_eq!(its.next(), None);
        assert_eq!(on["profile"], "3g.40gb");
        assert_eq!(on["index"], 0);
        assert_eq!(on["seats"], seats);
        assert_eq!(on["freeBytes"], free << 20);
    }
    let plain = setup
        .migctl(&["explain", "1g.10gb", "--json"])
        .exits(1)
        .json();
    let gpu = &plain["alternatives"][0]["gpus"][0];
    assert!(
        gpu["seats"].is_null() && gpu["migPlacement"].is_null(),
        "{gpu}"
    );
    setup.ends(&[&first, &second, &third, &fourth]);
}
