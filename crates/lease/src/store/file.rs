//! The ledger's file: a header, then all instances, leases, tickets and counters in one line of JSON.
//!
//! ```text
//! ledger.json      the ledger, replaced as a whole by the holder of ledger.lock
//! ledger.json.1    the generation before
//! .ledger.json, .1 drafts of both; a kill leaves them over
//! ledger.lock      its first line is the latest generation, so that no missing or old file counts as an empty ledger
//! ```
//!
//! A reader needs no lock: the file is always of one moment.

use super::instance::Instance;
use super::lease::{Held, Lease, LeaseState};
use super::lock::{self, Lock};
use super::queue::Queue;
use super::{accounts, random_id};
use crate::counters::Counts;
use crate::error::{Context, Error, Result, printable};
use crate::files::{self, Links, Opened};
use crate::framed::{VERSION, hex, json};
use crate::model::{BootId, InstanceId, LeaseId};
use crate::{effect, trust};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fs::Metadata;
use std::io::{self, ErrorKind};
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

pub(crate) const FILE: &str = "ledger.json";
pub(super) const LOCK: &str = "ledger.lock";
pub(super) const BEFORE: &str = "ledger.json.1";
const DRAFT: &str = ".ledger.json";
const DRAFT_BEFORE: &str = ".ledger.json.1";
const KIND: &str = "Ledger";
/// The limit of the file, in bytes. A lease with its instance is about 3 KiB.
const MAX_SIZE: u64 = 64 << 20;
/// The limit of its header, in bytes.
const MAX_HEADER: u64 = 1024;
/// The limits of a lease or an instance, in bytes. One that is not made yet leaves room for later facts.
const MAX_RECORD: usize = 256 * 1024;
const MAX_PENDING: usize = MAX_RECORD / 4;

/// All instances, leases and tickets, and the counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct State {
    pub instances: Vec<Arc<Instance>>,
    pub leases: Vec<Arc<Lease>>,
    /// The leases of earlier boots, until their bundles are restored. Their instances ended with their boot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<Held>,
    pub queue: Queue,
    #[serde(default, skip_serializing_if = "Counts::is_empty")]
    pub counters: Counts,
}

/// The first line of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Header {
    api_version: String,
    kind: String,
    /// A random id, which stays the same for the ledger's life.
    pub id: String,
    /// The boot in which it was written. Its instances and leases end with that boot.
    pub boot: BootId,
    /// The number of changes.
    pub generation: u64,
    /// The number of changes that removed a lease or an instance.
    pub freed: u64,
    /// The number of changes by which a ticket left the queue or was renewed.
    pub left: u64,
    /// The hash of this line with an empty hash, and of the rest.
    sha256: String,
}

/// What the first line has in every version, so that no program takes the ledger of another for a damaged one.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnyHeader {
    api_version: String,
    kind: String,
    sha256: String,
}

/// The ledger of one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    pub(super) header: Header,
    pub(super) state: State,
}

impl Deref for Content {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

/// The file of a ledger, and its content as this process read or wrote it last.
#[derive(Debug)]
pub(super) struct LedgerFile {
    dir: PathBuf,
    /// The boot of this process. Without it the file is read as it is.
    pub(super) boot: Option<BootId>,
    seen: Mutex<Option<(Mark, Arc<Content>)>>,
}

/// Tells a file from the next one in its place: device, inode, length, and the times of its last changes.
type Mark = (u64, u64, u64, [i64; 4]);

/// The outcome of a look at the file.
pub(super) enum Look {
    Whole(Arc<Content>),
    /// The ledger does not exist yet.
    None,
    /// The file is not the ledger that was written last, for this reason.
    Damaged(Error),
}

#[cfg(test)]
impl Content {
    /// Returns the file that a program of another version would write, with more in its first line.
    pub(super) fn as_version(&self, version: &str, more: &str) -> Vec<u8> {
        let header = Header {
            api_version: version.to_owned(),
            sha256: String::new(),
            ..self.header.clone()
        };
        let body = serde_json::to_string(&self.state).unwrap() + "\n";
        let head = line(&header).replace('}', &format!("{more}}}"));
        let empty = "\"sha256\":\"\"";
        let hashed = format!("\"sha256\":\"{}\"", hash(&head, "", &body));
        format!("{}\n{body}", head.replace(empty, &hashed)).into_bytes()
    }
}

impl Look {
    /// Returns the content. No ledger is an empty one.
    fn content(self, dir: &Path) -> Result<Arc<Content>> {
        match self {
            Look::Whole(content) => Ok(content),
            Look::None => Ok(Arc::default()),
            Look::Damaged(why) => {
                let file = dir.join(FILE);
                Err(
                    Error::new(format!("the ledger {} is damaged", file.display()))
                        .caused_by(why)
                        .hint("run migctl gc --repair as root"),
                )
            }
        }
    }
}

impl LedgerFile {
    pub(super) fn new(dir: &Path) -> LedgerFile {
        LedgerFile {
            dir: dir.to_owned(),
            boot: None,
            seen: Mutex::default(),
        }
    }

    /// Reads the ledger.
    ///
    /// # Errors
    /// The system's, and a ledger of another version.
    pub(super) fn look(&self) -> Result<Look> {
        match self.look_once()? {
            // The generation may have been read while it was written.
            Look::Damaged(_) => self.look_once(),
            look => Ok(look),
        }
    }

    /// Returns the content in this boot. No ledger is an empty one.
    ///
    /// # Errors
    /// Those of `look`, and a damaged ledger.
    pub(super) fn content(&self) -> Result<Arc<Content>> {
        self.look()?.content(&self.dir)
    }

    pub(super) fn is_of_earlier_boot(&self, content: &Content) -> bool {
        let is_other = |boot: &BootId| *boot != content.header.boot;
        content.header.generation > 0 && self.boot.as_ref().is_some_and(is_other)
    }

    fn in_this_boot(&self, content: Arc<Content>) -> Arc<Content> {
        if !self.is_of_earlier_boot(&content) {
            return content;
        }
        let Content { header, state } = Arc::unwrap_or_clone(content);
        let state = state.after_boot();
        Arc::new(Content { header, state })
    }

    fn look_once(&self) -> Result<Look> {
        // Read first: a file that is replaced meanwhile is newer.
        let least = generation(&self.dir)?;
        let older = |content: &Content| content.header.generation < least;
        let opened = match open(&self.dir.join(FILE))? {
            Ok(opened) => opened,
            Err(Look::None) if least > 0 || self.had_leases() => {
                return Ok(Look::Damaged(Error::new("it is missing")));
            }
            Err(look) => return Ok(look),
        };
        let mark = mark_of(&opened.meta);
        let seen = self.seen.lock().expect("no holder panics").clone();
        if let Some((its, content)) = seen
            && its == mark
            && !older(&content)
        {
            return Ok(Look::Whole(content));
        }
        let look = read(opened).context(|| format!("read {}", self.dir.join(FILE).display()))?;
        Ok(match look {
            Look::Whole(content) if older(&content) => Look::Damaged(Error::new(format!(
                "it is of generation {}, and the ledger was at {least}",
                content.header.generation
            ))),
            Look::Whole(content) => {
                let content = self.in_this_boot(content);
                self.see(mark, &content);
                Look::Whole(content)
            }
            look => look,
        })
    }

    /// Returns whether something beside the file tells that there was one.
    fn had_leases(&self) -> bool {
        // Not `paths::entries`: an entry that cannot be read is one.
        let accounts = std::fs::read_dir(self.dir.join(accounts::FOLDER));
        accounts.into_iter().flatten().next().is_some() || self.dir.join(BEFORE).exists()
    }

    fn see(&self, mark: Mark, content: &Arc<Content>) {
        *self.seen.lock().expect("no holder panics") = Some((mark, Arc::clone(content)));
    }

    /// Returns the latest ledger that is whole, for a repair, as this boot sees it: the file itself or the generation before.
    pub(super) fn latest_whole(&self) -> Option<Arc<Content>> {
        let whole = |name| match read(open(&self.dir.join(name)).ok()?.ok()?) {
            Ok(Look::Whole(content)) => Some(content),
            // One of another version serves as little as a damaged one.
            _ => None,
        };
        let found = [BEFORE, FILE].into_iter().filter_map(whole);
        let latest = found.max_by_key(|content| content.header.generation);
        latest.map(|content| self.in_this_boot(content))
    }

    /// Returns the header, and reads no more than that.
    pub(super) fn header(&self) -> Option<Header> {
        let opened = files::open(&self.dir.join(FILE), Links::Refuse).ok()?;
        let start = files::read_start(opened.file, MAX_HEADER).ok()?;
        let head = start.split(|byte| *byte == b'\n').next()?;
        serde_json::from_slice(head).ok()
    }

    /// Returns whether the bytes of the file contain a text, also those of a damaged one. A file that the system does not let
    /// read may contain it.
    pub(super) fn may_contain(&self, text: &str) -> bool {
        let opened = files::open(&self.dir.join(FILE), Links::Refuse);
        match opened.and_then(|file| file.contains(text, MAX_SIZE)) {
            Ok(contains) => contains,
            // It is a link, a folder or too large, so it is not what runmig wrote.
            Err(e) => {
                { e.raw_os_error() }.is_some_and(|e| ![libc::ENOENT, libc::ELOOP].contains(&e))
            }
        }
    }

    /// Replaces a damaged ledger. It gets another id, so a hook whose lease is not in it does not take that for released.
    pub(super) fn replace(
        &self,
        lock: &Lock,
        before: Option<&Content>,
        state: State,
    ) -> Result<()> {
        let known = before.map_or(0, |content| content.header.generation);
        let header = Header {
            generation: known.max(generation(&self.dir)?),
            freed: before.map_or(0, |content| content.header.freed) + 1,
            left: before.map_or(0, |content| content.header.left) + 1,
            ..Header::default()
        };
        let header = header.next(self.boot.as_ref(), true, true)?;
        let (file, draft) = (self.dir.join(FILE), self.dir.join(DRAFT));
        let what = || format!("write the ledger {}", file.display());
        let bytes = encode(&header, &state).context(what)?;
        // The generation before stays until the new one is written: it may be all that a repair has.
        let written =
            files::write_new(&draft, &bytes).and_then(|()| self.move_aside(&file, &header));
        files::put(&draft, &file, written).context(what)?;
        files::sync_folder(&self.dir)
            .and_then(|()| lock.keep(header.generation))
            .context(what)
    }

    /// Keeps a damaged file for people. A link or a folder has to move, and a file is replaced.
    fn move_aside(&self, file: &Path, header: &Header) -> io::Result<()> {
        let aside = self
            .dir
            .join(format!("{FILE}.damaged-{}", header.generation));
        match files::if_there(std::fs::symlink_metadata(file))? {
            Some(meta) if meta.is_file() => {
                let _ = effect::hard_link(file, &aside);
                Ok(())
            }
            Some(_) => effect::rename(file, &aside),
            None => Ok(()),
        }
    }

    /// Replaces the ledger. After an error it is as before. `tell` is called right before that, when the disk has room.
    pub(super) fn write(
        &self,
        lock: &Lock,
        before: &Content,
        state: State,
        tell: impl FnOnce(),
    ) -> Result<()> {
        let dir = self.dir.as_path();
        let file = dir.join(FILE);
        let what = || format!("write the ledger {}", file.display());
        let queue_loses = before.state.queue.loses(&state.queue);
        let header = before
            .header
            .next(self.boot.as_ref(), before.state.loses(&state), queue_loses)
            .context(what)?;
        let bytes = encode(&header, &state).context(what)?;
        let draft = dir.join(DRAFT);
        let written = files::write_new(&draft, &bytes).or_else(|e| match e.kind() {
            // The generation before has room for this one.
            ErrorKind::StorageFull => {
                files::unlink(&dir.join(BEFORE)).and_then(|_| files::write_new(&draft, &bytes))
            }
            _ => Err(e),
        });
        let kept = written.inspect(|()| {
            // It serves a repair alone.
            if let Err(e) = keep(dir) {
                tracing::warn!("cannot keep the ledger's generation before: {e}");
            }
            tell();
        });
        files::put(&draft, &file, kept).or_else(|e| match open(&file) {
            // Since the look it became a folder, which no file replaces.
            Ok(Err(look @ Look::Damaged(_))) => look.content(dir).map(drop),
            _ => Err(e).context(what),
        })?;
        // From here on all processes see the new ledger, so an error does not undo the change. A power cut ends the boot, and
        // all leases with it.
        if let Err(e) = files::sync_folder(dir).and_then(|()| lock.keep(header.generation)) {
            tracing::warn!("{}: {e}", what());
        }
        if let Ok(meta) = std::fs::symlink_metadata(&file) {
            self.see(mark_of(&meta), &Arc::new(Content { header, state }));
        }
        Ok(())
    }
}

/// Opens a file of the ledger, or returns what the look at it says.
fn open(file: &Path) -> Result<Result<Opened, Look>> {
    let damaged = |why: String| Ok(Err(Look::Damaged(Error::new(why))));
    match files::open(file, Links::Refuse) {
        Ok(opened) => Ok(match trust::check_metadata(&opened.meta) {
            Ok(()) => Ok(opened),
            Err(why) => Err(Look::Damaged(why)),
        }),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(Err(Look::None)),
        Err(e) if e.raw_os_error() == Some(libc::ELOOP) => damaged("it is a link".to_owned()),
        // It is a folder, a pipe or the like.
        Err(e) if e.raw_os_error().is_none() => damaged(e.to_string()),
        Err(e) => Err(e).context(|| format!("read {}", file.display())),
    }
}

fn read(opened: Opened) -> Result<Look> {
    match opened.read(MAX_SIZE) {
        Ok(bytes) => parse(&bytes),
        Err(e) if e.kind() == ErrorKind::FileTooLarge => {
            Ok(Look::Damaged(Error::new(e.to_string())))
        }
        Err(e) => Err(e).context(|| "read it"),
    }
}

fn mark_of(meta: &Metadata) -> Mark {
    let times = [
        meta.mtime(),
        meta.mtime_nsec(),
        meta.ctime(),
        meta.ctime_nsec(),
    ];
    (meta.dev(), meta.ino(), meta.len(), times)
}

/// Returns the ledger that these bytes are.
///
/// # Errors
/// They are a ledger of another version.
pub(super) fn parse(bytes: &[u8]) -> Result<Look> {
    let damaged = |why: &str| Ok(Look::Damaged(Error::new(why)));
    let Ok(text) = std::str::from_utf8(bytes) else {
        return damaged("it is not text");
    };
    let Some((head, rest)) = text.split_once('\n') else {
        return damaged("it is cut off");
    };
    let Ok(any) = serde_json::from_str::<AnyHeader>(head) else {
        return damaged("its first line cannot be read");
    };
    if any.sha256 != hash(head, &any.sha256, rest) {
        return damaged("its hash is wrong");
    }
    if (any.api_version.as_str(), any.kind.as_str()) != (VERSION, KIND) {
        return Err(Error::new(format!(
            "the ledger is a {} of {}, and this program reads {VERSION}",
            printable(&any.kind),
            printable(&any.api_version)
        ))
        .hint("use the runmig that wrote it, or end its containers with that one first"));
    }
    match (
        serde_json::from_str(head),
        serde_json::from_str::<State>(rest),
    ) {
        (Ok(header), Ok(state)) => Ok(match state.check() {
            Ok(()) => Look::Whole(Arc::new(Content { header, state })),
            Err(why) => Look::Damaged(why),
        }),
        (Err(e), _) | (_, Err(e)) => damaged(&format!("its content cannot be read: {e}")),
    }
}

/// Returns what a writer makes of the ledger that a reader reads, for a fuzz target. None for a damaged one.
pub(crate) fn rewritten_ledger(bytes: &[u8]) -> Result<Option<Vec<u8>>> {
    match parse(bytes)? {
        Look::Whole(content) => encode(&content.header, &content.state).map(Some),
        Look::None | Look::Damaged(_) => Ok(None),
    }
}

/// Returns a ledger with this body, for a fuzz target.
pub(crate) fn ledger_of_body(body: &str) -> Vec<u8> {
    let header = Header {
        api_version: VERSION.to_owned(),
        kind: KIND.to_owned(),
        ..Header::default()
    };
    framed(&header, &format!("{body}\n"))
}

/// Returns the hash of a ledger whose first line has this one.
fn hash(head: &str, its: &str, rest: &str) -> String {
    let field = |hash: &str| format!("\"sha256\":\"{hash}\"");
    let unhashed = head.replacen(&field(its), &field(""), 1) + "\n";
    let digest = Sha256::new().chain_update(unhashed).chain_update(rest);
    hex(&digest.finalize())
}

fn line(header: &Header) -> String {
    serde_json::to_string(header).expect("a header has only strings as keys")
}

/// Returns the latest generation of which the lock tells; 0 for none.
pub(super) fn generation(dir: &Path) -> Result<u64> {
    let path = dir.join(LOCK);
    let what = || format!("read {}", path.display());
    let start = match files::open(&path, Links::Refuse) {
        Ok(opened) => files::read_start(opened.file, Lock::KEPT).context(what)?,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(0),
        // It is a link, a folder or the like.
        Err(e) if matches!(e.raw_os_error(), None | Some(libc::ELOOP)) => {
            return Err(lock::not_regular(&path));
        }
        Err(e) => return Err(e).context(what),
    };
    if start.iter().all(|byte| *byte == 0) {
        return Ok(0);
    }
    let text = String::from_utf8_lossy(&start);
    // Whatever another program wrote there: there was a ledger.
    Ok(text.trim().parse().unwrap_or(1))
}

/// Keeps the present file as the generation before. What was that stays until then.
fn keep(dir: &Path) -> io::Result<()> {
    let link = dir.join(DRAFT_BEFORE);
    let linked = || effect::hard_link(&dir.join(FILE), &link);
    let kept = linked().or_else(|e| match e.kind() {
        // A kill left it.
        ErrorKind::AlreadyExists => files::unlink(&link).and_then(|_| linked()),
        _ => Err(e),
    });
    match files::if_there(kept)? {
        Some(()) => effect::rename(&link, &dir.join(BEFORE)),
        None => Ok(()),
    }
}

fn framed(header: &Header, body: &str) -> Vec<u8> {
    let mut header = Header {
        sha256: String::new(),
        ..header.clone()
    };
    header.sha256 = hash(&line(&header), "", body);
    format!("{}\n{body}", line(&header)).into_bytes()
}

fn encode(header: &Header, state: &State) -> Result<Vec<u8>> {
    let body = json(state, "ledger")? + "\n";
    let bytes = framed(header, &body);
    match bytes.len() as u64 {
        size if size > MAX_SIZE => Err(Error::new(format!(
            "it would be {size} bytes, more than {MAX_SIZE}"
        ))
        .hint("end some containers, then migctl gc")),
        _ => Ok(bytes),
    }
}

impl Header {
    /// Returns the header of the next generation.
    fn next(&self, boot: Option<&BootId>, frees: bool, leaves: bool) -> Result<Header> {
        Ok(Header {
            api_version: VERSION.to_owned(),
            kind: KIND.to_owned(),
            id: match self.id.as_str() {
                "" => random_id()?,
                id => id.to_owned(),
            },
            boot: boot.unwrap_or(&self.boot).clone(),
            generation: self.generation.saturating_add(1),
            freed: self.freed + u64::from(frees),
            left: self.left + u64::from(leaves),
            sha256: String::new(),
        })
    }
}

impl State {
    /// Fails where a lease has no instance, or an id stands twice.
    pub(super) fn check(&self) -> Result<()> {
        let twice = |id: &str| Error::new(format!("{} stands in it twice", printable(id)));
        let mut instances = BTreeSet::new();
        if let Some(again) = self.instances.iter().find(|i| !instances.insert(&i.id)) {
            return Err(twice(again.id.as_str()));
        }
        let mut leases = BTreeSet::new();
        for lease in &self.leases {
            if !leases.insert(&lease.id) {
                return Err(twice(lease.id.as_str()));
            }
            if !instances.contains(&lease.instance) {
                let (lease, instance) = (&lease.id, &lease.instance);
                return Err(Error::new(format!(
                    "instance {} of lease {} is not in it",
                    printable(instance.as_str()),
                    printable(lease.as_str())
                )));
            }
        }
        match self.queue.is_in_order() {
            true => Ok(()),
            false => Err(Error::new("its tickets are not in order")),
        }
    }

    /// Returns the state as the next boot sees it.
    fn after_boot(mut self) -> State {
        let held: Vec<Held> = self.all_held().collect();
        self.earlier.extend(held);
        State {
            earlier: self.earlier,
            ..State::default()
        }
    }

    /// Returns whether another state lacks a lease or an instance of this one.
    fn loses(&self, after: &State) -> bool {
        let instances: BTreeSet<_> = after.instances.iter().map(|i| &i.id).collect();
        let leases: BTreeSet<_> = after.leases.iter().map(|l| &l.id).collect();
        self.instances.iter().any(|i| !instances.contains(&i.id))
            || self.leases.iter().any(|l| !leases.contains(&l.id))
    }

    pub(crate) fn lease(&self, id: &LeaseId) -> Option<&Arc<Lease>> {
        self.leases.iter().find(|lease| lease.id == *id)
    }

    pub(crate) fn instance(&self, id: &InstanceId) -> Option<&Arc<Instance>> {
        self.instances.iter().find(|instance| instance.id == *id)
    }

    /// Returns whether a lease other than this one is on an instance.
    pub(crate) fn has_others(&self, instance: &InstanceId, than: Option<&LeaseId>) -> bool {
        let mut on = self.leases.iter().filter(|l| l.instance == *instance);
        on.any(|lease| Some(&lease.id) != than)
    }

    /// Adds or replaces a lease.
    pub(crate) fn put_lease(&mut self, lease: Arc<Lease>) -> Result<()> {
        let most = match lease.state {
            LeaseState::Pending => MAX_PENDING,
            LeaseState::Ready | LeaseState::Releasing => MAX_RECORD,
        };
        check_size(&lease, most)?;
        match self.leases.iter_mut().find(|its| its.id == lease.id) {
            Some(its) => *its = lease,
            None => self.leases.push(lease),
        }
        Ok(())
    }

    /// Adds or replaces an instance.
    pub(crate) fn put_instance(&mut self, instance: impl Into<Arc<Instance>>) -> Result<()> {
        let instance = instance.into();
        check_size(&instance, MAX_RECORD)?;
        match self.instances.iter_mut().find(|its| its.id == instance.id) {
            Some(its) => *its = instance,
            None => self.instances.push(instance),
        }
        Ok(())
    }

    /// Changes a lease. Returns it as it is then, or none if it is not on record.
    pub(crate) fn update_lease(
        &mut self,
        id: &LeaseId,
        change: impl FnOnce(&mut Lease),
    ) -> Result<Option<Arc<Lease>>> {
        let mut lease = self.lease(id).cloned();
        if let Some(lease) = &mut lease {
            change(Arc::make_mut(lease));
            self.put_lease(Arc::clone(lease))?;
        }
        Ok(lease)
    }

    /// Changes an instance. Returns it as it is then, or none if it is not on record.
    pub(crate) fn update_instance(
        &mut self,
        id: &InstanceId,
        change: impl FnOnce(&mut Instance),
    ) -> Result<Option<Arc<Instance>>> {
        let mut instance = self.instance(id).cloned();
        if let Some(instance) = &mut instance {
            change(Arc::make_mut(instance));
            self.put_instance(Arc::clone(instance))?;
        }
        Ok(instance)
    }

    /// Removes a lease, and returns whether it was there.
    pub(crate) fn remove_lease(&mut self, id: &LeaseId) -> bool {
        let before = self.leases.len();
        self.leases.retain(|lease| lease.id != *id);
        self.leases.len() < before
    }

    /// Removes an instance, and returns whether it was there.
    pub(crate) fn remove_instance(&mut self, id: &InstanceId) -> bool {
        let before = self.instances.len();
        self.instances.retain(|instance| instance.id != *id);
        self.instances.len() < before
    }
}

/// Checks the size of a record before the write. The simulation of a full disk aside, only long paths and names of pods
/// reach it.
pub(super) fn check_size(record: &impl Serialize, most: usize) -> Result<()> {
    // A path that is no JSON is told with the whole ledger.
    let size = serde_json::to_vec(record).map_or(0, |bytes| bytes.len());
    if size <= most {
        return Ok(());
    }
    Err(
        Error::new(format!("it would be {size} bytes, more than {most}"))
            .hint("give the container a shorter id, root, bundle and cgroup path"),
    )
}
