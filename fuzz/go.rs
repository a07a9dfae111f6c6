//! Go's reading of a config.json, and runmig's: for tests and fuzz targets that compare them.

use serde_json::{Map, Value};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// The program of `fuzz/go-reader`, started once and asked many times.
pub struct GoReader {
    child: Child,
    input: Option<ChildStdin>,
    output: ChildStdout,
}

impl GoReader {
    /// None where there is no Go. `source` is the folder `fuzz/go-reader`; what is built of it lies in
    /// `folder`, until it is started.
    pub fn start(source: &Path, folder: &Path) -> Option<GoReader> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let program = &folder.join(format!("go-reader-{}-{count}", std::process::id()));
        let mut build = Command::new("go");
        build.current_dir(source).args(["build", "-o"]).arg(program);
        // from the standard library, with the Go that is there
        build.env("GOPROXY", "off").env("GOTOOLCHAIN", "local");
        build
            .env("GOFLAGS", "-buildvcs=false")
            .env("CGO_ENABLED", "0");
        let built = match build.output() {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return None,
            built => built.expect("start go"),
        };
        let said = String::from_utf8_lossy(&built.stderr);
        assert!(built.status.success(), "go build: {said}");
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start the reader");
        let _ = std::fs::remove_file(program);
        Some(GoReader {
            input: child.stdin.take(),
            output: child.stdout.take().expect("a pipe"),
            child,
        })
    }

    /// Returns what Go reads in the document, or its error.
    pub fn read(&mut self, document: &[u8]) -> Result<Value, String> {
        let input = self.input.as_mut().expect("a pipe");
        let length = u32::try_from(document.len()).expect("a short document");
        input.write_all(&length.to_be_bytes()).unwrap();
        input.write_all(document).unwrap();
        let mut length = [0; 4];
        self.output.read_exact(&mut length).unwrap();
        let mut answer = vec![0; u32::from_be_bytes(length) as usize];
        self.output.read_exact(&mut answer).unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        match answer.get("error") {
            Some(error) => Err(error.as_str().unwrap_or_default().to_owned()),
            None => Ok(answer),
        }
    }
}

impl Drop for GoReader {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

/// The types of `fuzz/go-reader/main.go`.
enum Kind {
    Text,
    Number,
    Flag,
    /// Absent is not zero here.
    Pointer(&'static Kind),
    List(&'static Kind),
    Texts,
    Struct(&'static [(&'static str, Kind)]),
}

use Kind::{Flag, List, Number, Pointer, Struct, Text, Texts};

const HOOK: Kind = Struct(&[
    ("path", Text),
    ("args", List(&Text)),
    ("env", List(&Text)),
    ("timeout", Pointer(&Number)),
]);

const SPEC: Kind = Struct(&[
    (
        "process",
        Pointer(&Struct(&[
            (
                "user",
                Struct(&[
                    ("uid", Number),
                    ("gid", Number),
                    ("additionalGids", List(&Number)),
                ]),
            ),
            ("env", List(&Text)),
        ])),
    ),
    (
        "mounts",
        List(&Struct(&[
            ("destination", Text),
            ("type", Text),
            ("source", Text),
            ("options", List(&Text)),
        ])),
    ),
    (
        "hooks",
        Pointer(&Struct(&[
            ("prestart", List(&HOOK)),
            ("createRuntime", List(&HOOK)),
            ("createContainer", List(&HOOK)),
            ("startContainer", List(&HOOK)),
            ("poststart", List(&HOOK)),
            ("poststop", List(&HOOK)),
        ])),
    ),
    ("annotations", Texts),
    (
        "linux",
        Pointer(&Struct(&[
            (
                "devices",
                List(&Struct(&[
                    ("path", Text),
                    ("type", Text),
                    ("major", Number),
                    ("minor", Number),
                    ("fileMode", Pointer(&Number)),
                    ("uid", Pointer(&Number)),
                    ("gid", Pointer(&Number)),
                ])),
            ),
            (
                "resources",
                Pointer(&Struct(&[(
                    "devices",
                    List(&Struct(&[
                        ("allow", Flag),
                        ("type", Text),
                        ("major", Pointer(&Number)),
                        ("minor", Pointer(&Number)),
                        ("access", Text),
                    ])),
                )])),
            ),
            (
                "namespaces",
                List(&Struct(&[("type", Text), ("path", Text)])),
            ),
            ("cgroupsPath", Text),
        ])),
    ),
]);

/// Returns what runmig reads in the document: its tree, key by key, in the form of Go's answer.
pub fn believed(document: &[u8]) -> Value {
    let tree: Value = serde_json::from_slice(document).expect("JSON");
    normal(&SPEC, &tree)
}

fn normal(kind: &Kind, value: &Value) -> Value {
    match (kind, value) {
        (Pointer(_) | List(_) | Texts, Value::Null) => Value::Null,
        (Pointer(kind), value) => normal(kind, value),
        (List(kind), Value::Array(list)) => list.iter().map(|v| normal(kind, v)).collect(),
        (Texts, Value::Object(map)) => {
            let texts = map.iter().map(|(k, v)| (k.clone(), normal(&Text, v)));
            Value::Object(texts.collect())
        }
        (Struct(fields), Value::Object(_) | Value::Null) => {
            let of = |name: &str| value.get(name).unwrap_or(&Value::Null);
            let fields = fields
                .iter()
                .map(|(name, kind)| ((*name).to_owned(), normal(kind, of(name))));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        (Text, Value::Null) => "".into(),
        (Number, Value::Null) => 0.into(),
        (Flag, Value::Null) => false.into(),
        (Text, Value::String(_)) | (Flag, Value::Bool(_)) => value.clone(),
        (Number, Value::Number(n)) => n.as_i64().map_or(Value::Null, Value::from),
        // Go refuses it, so whatever stands here is not compared
        _ => Value::Null,
    }
}
