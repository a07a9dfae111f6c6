//! `migctl explain` of a request for a seat, as JSON.

use super::*;

/// Two slices of one profile on one GPU differ by their place.
#[test]
fn tells_slices_of_gpu_apart() {
    let setup = on(Low::Runc, "none");
    let ids = ["3/4", "1/2", "1/4", "1/8"].map(|size| create(&setup, "3g.40gb", size));
    let [first, second, third, fourth] = ids.each_ref().map(|id| device(&setup, id));
    assert_eq!((&first, &second), (&third, &fourth));
    let explain = ["explain", "3g.40gb", "--share", "1/8", "-o", "json"];
    let told = setup.json(&explain);
    let slices = told["alternatives"][0]["gpus"].as_array().unwrap().clone();
    assert_eq!(slices.len(), 2);
    for (id, seats, free) in [(&ids[0], 2, 0), (&ids[1], 2, MEMORY * 3 / 8)] {
        let place = &setup.lease(id)["migPlacement"];
        let mut its = slices.iter().filter(|on| on["migPlacement"] == *place);
        let on = its.next().unwrap();
        assert_eq!(its.next(), None);
        assert_eq!(on["profile"], "3g.40gb");
        assert_eq!(on["index"], 0);
        assert_eq!(on["seats"], seats);
        assert_eq!(on["freeBytes"], free << 20);
    }
    let plain = setup.migctl(&["explain", "1g.10gb", "-ojson"]);
    let gpu = &plain.exits(1).json()["alternatives"][0]["gpus"][0];
    for field in ["seats", "migPlacement"] {
        assert_eq!(gpu[field], Value::Null);
    }
    setup.ends(&ids);
}
