//! Holds the JSON types against `docs/migctl.schema.json`, one JSON Schema for each kind.
//!
//! `UPDATE=1 cargo test --lib cli::json` writes the file anew after a field was added or described in other words. It
//! refuses where a field vanished, changed its type, or may be absent or null where it was not: fields are only
//! ever added.

use super::*;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};
use std::fs;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/migctl.schema.json");
const PUBLISHED: &str = include_str!("../../../docs/migctl.schema.json");

fn add<T: Kind + JsonSchema>(kinds: &mut Map<String, Value>) {
    let generator = SchemaSettings::draft2020_12().for_serialize();
    let schema = generator
        .into_generator()
        .into_root_schema_for::<Object<'_, T>>();
    kinds.insert(T::KIND.to_owned(), schema.into());
}

fn schemas() -> Value {
    let mut kinds = Map::new();
    add::<Items<'_, GpuItem<'_>>>(&mut kinds);
    add::<NodeBooking<'_>>(&mut kinds);
    add::<LeaseList<'_>>(&mut kinds);
    add::<Explanation<'_>>(&mut kinds);
    add::<DefragmentationPlan<'_>>(&mut kinds);
    add::<Items<'_, CollectionItem<'_>>>(&mut kinds);
    add::<Items<'_, ReloadItem>>(&mut kinds);
    add::<Items<'_, ChangeItem<'_>>>(&mut kinds);
    add::<Items<'_, DiagnosisItem<'_>>>(&mut kinds);
    add::<EventItem<'_>>(&mut kinds);
    add::<LayoutAssertion>(&mut kinds);
    add::<LayoutPlan<'_>>(&mut kinds);
    Value::Object(kinds)
}

/// Returns the parts of `old` that `new` lacks or has in another form. Descriptions do not count.
fn lost(at: &str, old: &Value, new: &Value) -> Vec<String> {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let counted = old.iter().filter(|(key, _)| *key != "description");
            let each = counted.map(|(key, value)| {
                let at = format!("{at}/{key}");
                new.get(key)
                    .map_or_else(|| vec![at.clone()], |new| lost(&at, value, new))
            });
            each.flatten().collect()
        }
        // The names of the fields that are always there.
        (Value::Array(old), Value::Array(new)) if at.ends_with("/required") => {
            let gone = old.iter().filter(|name| !new.contains(name));
            gone.map(|name| format!("{at}/{name}")).collect()
        }
        _ if old == new => Vec::new(),
        _ => vec![at.to_owned()],
    }
}

#[test]
fn matches_the_published_schema() {
    let known: Value = serde_json::from_str(PUBLISHED).unwrap();
    let now = schemas();
    let lost = lost("", &known, &now);
    assert!(lost.is_empty(), "no longer as promised: {lost:#?}");
    if std::env::var_os("UPDATE").is_some() {
        let text = serde_json::to_string_pretty(&now).unwrap();
        fs::write(FILE, text + "\n").unwrap();
        return;
    }
    assert!(now == known, "fields were added: run with UPDATE=1");
}

#[test]
fn names_each_broken_promise() {
    let old = schemas();
    assert_eq!(lost("", &old, &old), [""; 0]);
    let item = "/LeaseList/$defs/LeaseItem";
    for (path, key) in [
        ("/properties", "podUID"),
        ("/properties/attempts", "type"),
        ("/properties/error/type", ""),
    ] {
        let mut new = old.clone();
        let place = new.pointer_mut(&format!("{item}{path}")).unwrap();
        match place {
            Value::Object(place) => drop(place.remove(key)),
            other => *other = "string".into(),
        }
        let expected = format!("{item}{path}/{key}");
        assert_eq!(lost("", &old, &new), [expected.trim_end_matches('/')]);
        assert!(lost("", &new, &old).len() < 2);
    }
    let mut new = old.clone();
    let required = new.pointer_mut(&format!("{item}/required")).unwrap();
    required.as_array_mut().unwrap().remove(0);
    assert_eq!(lost("", &old, &new), [format!("{item}/required/\"id\"")]);
}
