//! All volumes of the node and the pods that use them. The handle changes what pods want; the engine changes what is
//! mounted.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::{ConfigObjectRef, MountedVolume, PodExt, PodUid, RootDir, VolumeLeases};
use tokio::sync::watch;
use tokio::time::Instant;

use super::back_off::Kind;
use super::next_step::{Presence, Wanted};
use super::paths;
use super::record::{Record, VolumeKey};
use super::resolve::Resolved;
use super::sources::Sources;

/// The volumes and pods of the node.
pub(crate) struct State {
    pub(crate) records: BTreeMap<VolumeKey, Record>,
    pub(crate) pods: HashMap<PodUid, PodVolumes>,
    /// The volumes whose situation has changed.
    pub(crate) dirty: BTreeSet<VolumeKey>,
    /// The pods whose claims must be read again.
    pub(crate) claims_to_read: BTreeSet<PodUid>,
    /// What an earlier agent left is known.
    pub(crate) is_read: bool,
    /// The volumes that the API server lists as attached were read, or nothing was found that may be attached.
    pub(crate) attached_is_known: bool,
    /// The mounts that use an object.
    users: HashMap<ConfigObjectRef, BTreeSet<(VolumeKey, PodUid)>>,
    /// Counts the changes of the volumes in use.
    pub(crate) in_use: watch::Sender<u64>,
    root_dir: RootDir,
    leases: VolumeLeases,
}

/// The volumes of one pod.
pub(crate) struct PodVolumes {
    pub(crate) pod: Arc<Pod>,
    /// The volumes by their names in the pod.
    pub(crate) names: BTreeMap<String, VolumeKey>,
    /// Counts the changes of its volumes.
    pub(crate) changed: watch::Sender<u64>,
}

impl State {
    pub(crate) fn new(root_dir: RootDir, leases: VolumeLeases) -> Self {
        Self {
            records: BTreeMap::new(),
            pods: HashMap::new(),
            dirty: BTreeSet::new(),
            claims_to_read: BTreeSet::new(),
            is_read: false,
            attached_is_known: false,
            users: HashMap::new(),
            in_use: watch::Sender::default(),
            root_dir,
            leases,
        }
    }

    /// The entry of a pod whose volumes are waited for.
    pub(crate) fn pod(&mut self, pod: &Arc<Pod>) -> &mut PodVolumes {
        let entry = self.pods.entry(pod.uid()).or_insert_with(|| PodVolumes {
            pod: pod.clone(),
            names: BTreeMap::new(),
            changed: watch::Sender::default(),
        });
        entry.pod = pod.clone();
        entry
    }

    /// The entry of a pod of which only the UID may be known.
    pub(crate) fn pod_of(&mut self, uid: &PodUid) -> &mut PodVolumes {
        self.pods.entry(uid.clone()).or_insert_with(|| PodVolumes {
            pod: Arc::default(),
            names: BTreeMap::new(),
            changed: watch::Sender::default(),
        })
    }

    /// Whether a pod that may run uses any volume.
    pub(crate) fn is_wanted(&self, uid: &PodUid) -> bool {
        self.pods.get(uid).is_some_and(|entry| !entry.names.is_empty())
    }

    /// The pod wants this volume. Sets it up again if the pod has changed and its files depend on the pod, or if
    /// `refresh` says that changes of its sources are not observed.
    ///
    /// # Errors
    ///
    /// If another pod uses it with another SELinux context: then nothing changes.
    pub(crate) fn want(
        &mut self,
        pod: &Arc<Pod>,
        before: Option<&Pod>,
        wanted: Resolved,
        refresh: Refresh,
    ) -> Result<(), String> {
        let uid = pod.uid();
        let (key, outer_name) = (wanted.key.clone(), wanted.outer_name.clone());
        let on_disk = paths::on_disk(&self.root_dir, &uid, &*wanted.plugin, &wanted.spec);
        let is_new = !self.records.contains_key(&key);
        let record = self
            .records
            .entry(key.clone())
            .or_insert_with(|| Record::new(&wanted));
        record.admit(&uid, &wanted)?;
        let left = self.forget_unknown(&on_disk.dir, &key, &uid);
        let sizes = wanted.sizes;
        let Some(record) = self.records.get_mut(&key) else {
            return Ok(());
        };
        if left != Left::Nothing || record.mounts.get(&uid).is_some_and(|mount| mount.was_found) {
            record.keep_context();
        }
        let was_wanted = record
            .situation
            .mounts
            .get(&uid)
            .is_some_and(|mount| mount.wanted == Wanted::Yes);
        let was_attachable = record.situation.attachable;
        let was_unknown = record.mounts.get(&uid).is_some_and(|mount| mount.is_unknown);
        record.want(pod, wanted, on_disk, Instant::now());
        if left != Left::Nothing
            && let Some(mount) = record.situation.mounts.get_mut(&uid)
        {
            mount.waits_for_folder = left == Left::Busy;
            if mount.presence == Presence::Absent {
                mount.presence = Presence::Uncertain;
            }
        }
        if let Some((claimed, size)) = sizes {
            record.size.current.get_or_insert(claimed);
            record.size.wanted = Some(size);
            record.situation.must_grow = record.growth().is_some();
        }
        let is_in_use_now = (is_new || !was_attachable) && record.situation.attachable;
        let changed = self.update_sources(pod, before, &key, refresh);
        self.pod(pod).names.insert(outer_name, key.clone());
        if was_unknown {
            self.release_devices();
        }
        if is_in_use_now {
            self.note_in_use();
        }
        if is_new || !was_wanted || changed || sizes.is_some() {
            self.dirty.insert(key);
        }
        Ok(())
    }

    /// Finds out again what the files of the mount are made from, and marks it if they must be made again.
    fn update_sources(&mut self, pod: &Pod, before: Option<&Pod>, key: &VolumeKey, refresh: Refresh) -> bool {
        let uid = pod.uid();
        let Some(record) = self.records.get_mut(key) else {
            return false;
        };
        let Some(mount) = record.mounts.get(&uid) else {
            return false;
        };
        let sources = Sources::of(&*record.plugin, &record.pod_mount(mount, &self.leases));
        let old = match record.mounts.get_mut(&uid) {
            Some(mount) => std::mem::replace(&mut mount.sources, sources.clone()),
            None => return false,
        };
        if old.objects != sources.objects {
            for object in &old.objects {
                remove_user(&mut self.users, object, key, &uid);
            }
            for object in &sources.objects {
                let users = self.users.entry(object.clone()).or_default();
                users.insert((key.clone(), uid.clone()));
            }
        }
        let pod_changed = sources.pod && before.is_some_and(|before| differs(before, pod));
        let is_due = pod_changed || old != sources || refresh.concerns(&sources);
        is_due && record.mark_stale(&uid)
    }

    /// The pod is synced again, and all its volumes are known.
    pub(crate) fn sync(&mut self, pod: &Arc<Pod>, refresh: Refresh) {
        let Some(entry) = self.pods.get(&pod.uid()) else {
            return;
        };
        if Arc::ptr_eq(&entry.pod, pod) && !refresh.is_any() {
            return;
        }
        let before = entry.pod.clone();
        let keys: BTreeSet<VolumeKey> = entry.names.values().cloned().collect();
        for key in keys {
            if let Some(mount) = self
                .records
                .get_mut(&key)
                .and_then(|record| record.mounts.get_mut(&pod.uid()))
            {
                mount.pod = pod.clone();
            }
            if self.update_sources(pod, Some(&before), &key, refresh) {
                self.dirty.insert(key);
            }
        }
        self.pod(pod);
    }

    /// No container of the pod runs or will run.
    pub(crate) fn unwant_pod(&mut self, uid: &PodUid) {
        let mut changed = false;
        for (key, record) in &mut self.records {
            if record.unwant(uid) {
                changed |= record.situation.attachable;
                self.dirty.insert(key.clone());
            }
        }
        if let Some(entry) = self.pods.get_mut(uid) {
            entry.names.clear();
        }
        self.claims_to_read.remove(uid);
        if changed {
            self.note_in_use();
        }
    }

    /// The volumes of the pod of which something is or may be mounted.
    pub(crate) fn left_of(&self, uid: &PodUid) -> Vec<VolumeKey> {
        let with = self
            .records
            .iter()
            .filter(|(_, record)| record.mounts.contains_key(uid));
        with.map(|(key, _)| key.clone()).collect()
    }

    /// The pod's mounted volumes by their names in the pod.
    pub(crate) fn mounted(&self, uid: &PodUid) -> BTreeMap<String, MountedVolume> {
        let Some(entry) = self.pods.get(uid) else {
            return BTreeMap::new();
        };
        let mounted = entry.names.iter().filter_map(|(name, key)| {
            let record = self.records.get(key)?;
            let is_mounted = record.situation.mounts.get(uid)?.presence == Presence::Mounted;
            let volume = record.mounts.get(uid)?.mounted.clone()?;
            is_mounted.then(|| (name.clone(), volume))
        });
        mounted.collect()
    }

    /// Whether a volume of the pod has changed files to come, and making them has not failed yet.
    pub(crate) fn is_updating(&self, uid: &PodUid) -> bool {
        let Some(entry) = self.pods.get(uid) else {
            return false;
        };
        entry.names.values().any(|key| {
            let mount = self
                .records
                .get(key)
                .and_then(|record| record.situation.mounts.get(uid));
            mount.is_some_and(|mount| mount.is_stale && !mount.back_off.has_failed(Kind::Mount))
        })
    }

    /// Lets changed volumes of the pod be set up at once, because somebody waits. Returns whether there are any.
    pub(crate) fn hurry(&mut self, uid: &PodUid) -> bool {
        let Some(entry) = self.pods.get(uid) else {
            return false;
        };
        let before = self.dirty.len();
        for key in entry.names.values() {
            let mount = self
                .records
                .get_mut(key)
                .and_then(|record| record.situation.mounts.get_mut(uid));
            if mount.is_some_and(|mount| mount.is_stale && mount.rests_until.take().is_some()) {
                self.dirty.insert(key.clone());
            }
        }
        self.dirty.len() > before
    }

    /// Marks the mounts that use an object. `None`: any may have changed.
    pub(crate) fn object_changed(&mut self, object: Option<&ConfigObjectRef>) {
        let users: Vec<(VolumeKey, PodUid)> = match object {
            Some(object) => self.users.get(object).into_iter().flatten().cloned().collect(),
            None => self.users.values().flatten().cloned().collect(),
        };
        self.mark_stale(users);
    }

    /// Marks the mounts with sources of a kind.
    pub(crate) fn sources_changed(&mut self, concerns: impl Fn(&PodUid, &Sources) -> bool) {
        let all = self.records.iter().flat_map(|(key, record)| {
            let mounts = record
                .mounts
                .iter()
                .filter(|(uid, mount)| concerns(uid, &mount.sources));
            mounts.map(|(uid, _)| (key.clone(), uid.clone()))
        });
        let users: Vec<(VolumeKey, PodUid)> = all.collect();
        self.mark_stale(users);
    }

    fn mark_stale(&mut self, users: Vec<(VolumeKey, PodUid)>) {
        for (key, uid) in users {
            if self
                .records
                .get_mut(&key)
                .is_some_and(|record| record.mark_stale(&uid))
            {
                self.dirty.insert(key);
            }
        }
    }

    /// The situation of a volume has changed: wakes who waits for its pods, and forgets those that are gone.
    pub(crate) fn note(&mut self, key: &VolumeKey) {
        self.release_folders(key);
        let Some(record) = self.records.get_mut(key) else {
            return;
        };
        let uids: Vec<PodUid> = record.mounts.keys().cloned().collect();
        let objects: Vec<(PodUid, Vec<ConfigObjectRef>)> = record
            .mounts
            .iter()
            .map(|(uid, mount)| (uid.clone(), mount.sources.objects.clone()))
            .collect();
        let had_unknown = record.mounts.values().any(|mount| mount.is_unknown);
        let gone = record.drop_gone();
        let has_unknown = record.mounts.values().any(|mount| mount.is_unknown);
        for (uid, objects) in objects.into_iter().filter(|(uid, _)| gone.contains(uid)) {
            for object in objects {
                remove_user(&mut self.users, &object, key, &uid);
            }
        }
        self.dirty.insert(key.clone());
        if had_unknown && !has_unknown {
            self.release_devices();
        }
        for uid in uids {
            if let Some(entry) = self.pods.get(&uid) {
                entry.changed.send_modify(|count| *count += 1);
            }
        }
        for uid in gone {
            let is_unused = self.pods.get(&uid).is_some_and(|entry| entry.names.is_empty());
            if is_unused && self.left_of(&uid).is_empty() {
                self.pods.remove(&uid);
            }
        }
    }

    /// Whether a pod may use a device that an earlier agent mounted, although no mount of it is known: some volume of the
    /// plugin could not be reconstructed.
    pub(crate) fn device_is_held(&self, key: &VolumeKey) -> bool {
        let Some(record) = self.records.get(key).filter(|record| record.device_was_found) else {
            return false;
        };
        let mut others = self
            .records
            .values()
            .filter(|other| other.plugin.name() == record.plugin.name());
        others.any(|other| other.mounts.values().any(|mount| mount.is_unknown))
    }

    /// A volume that could not be reconstructed is gone, or known by now.
    fn release_devices(&mut self) {
        let found = self.records.iter().filter(|(_, record)| record.device_was_found);
        let found: Vec<VolumeKey> = found.map(|(key, _)| key.clone()).collect();
        self.dirty.extend(found);
    }

    /// Nothing of the volume is left, and no pod wants it.
    pub(crate) fn forget(&mut self, key: &VolumeKey) {
        // Mounts that never succeeded are gone too.
        self.note(key);
        self.dirty.remove(key);
        let removed = self.records.remove(key);
        if removed.is_some_and(|record| record.situation.attachable) {
            self.note_in_use();
        }
    }

    pub(crate) fn note_in_use(&self) {
        self.in_use.send_modify(|count| *count += 1);
    }

    /// A pod wants a volume whose folder was found without knowing what is in it. An operation that is removing the folder
    /// ends first.
    fn forget_unknown(&mut self, dir: &std::path::Path, key: &VolumeKey, uid: &PodUid) -> Left {
        let mut others = self.records.iter_mut().filter(|(other, _)| *other != key);
        let found = others.find(|(_, record)| {
            record
                .mounts
                .get(uid)
                .is_some_and(|mount| mount.is_unknown && mount.on_disk.dir == dir)
        });
        let Some((other, record)) = found else {
            return Left::Nothing;
        };
        if record.situation.is_busy {
            return Left::Busy;
        }
        record.mounts.remove(uid);
        record.situation.mounts.remove(uid);
        self.dirty.insert(other.clone());
        self.release_devices();
        Left::Folder
    }

    /// The mounts that waited for the folders of this volume take them over, if its operation has ended.
    fn release_folders(&mut self, key: &VolumeKey) {
        let Some(record) = self.records.get(key).filter(|record| !record.situation.is_busy) else {
            return;
        };
        let unknown = record.mounts.iter().filter(|(_, mount)| mount.is_unknown);
        let folders: Vec<_> = unknown
            .map(|(uid, mount)| (uid.clone(), mount.on_disk.dir.clone()))
            .collect();
        for (uid, dir) in folders {
            let mut others = self.records.iter_mut().filter(|(other, _)| *other != key);
            let waiting = others.find_map(|(other, record)| {
                let is_here = record.mounts.get(&uid)?.on_disk.dir == dir;
                let mount = record.situation.mounts.get_mut(&uid)?;
                (is_here && std::mem::take(&mut mount.waits_for_folder)).then(|| other.clone())
            });
            let Some(waiting) = waiting else { continue };
            self.dirty.insert(waiting);
            if let Some(record) = self.records.get_mut(key) {
                record.mounts.remove(&uid);
                record.situation.mounts.remove(&uid);
            }
            self.release_devices();
        }
    }
}

/// What is left of a volume that could not be reconstructed, in the folder of one that a pod wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Nothing,
    /// Its folder.
    Folder,
    /// An operation is removing its folder.
    Busy,
}

/// Which sources must be read again with each sync of a pod, because their changes are not observed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Refresh {
    pub(crate) objects: bool,
    pub(crate) trust_bundles: bool,
    pub(crate) certificates: bool,
}

impl Refresh {
    fn is_any(self) -> bool {
        self.objects || self.trust_bundles || self.certificates
    }

    fn concerns(self, sources: &Sources) -> bool {
        self.objects && !sources.objects.is_empty()
            || self.trust_bundles && sources.trust_bundles
            || self.certificates && sources.certificates
    }
}

/// Whether files that are made from the pod may differ.
fn differs(before: &Pod, now: &Pod) -> bool {
    before.metadata.labels != now.metadata.labels
        || before.metadata.annotations != now.metadata.annotations
        || before.spec != now.spec
}

fn remove_user(
    users: &mut HashMap<ConfigObjectRef, BTreeSet<(VolumeKey, PodUid)>>,
    object: &ConfigObjectRef,
    key: &VolumeKey,
    uid: &PodUid,
) {
    if let Some(of_object) = users.get_mut(object) {
        of_object.remove(&(key.clone(), uid.clone()));
        if of_object.is_empty() {
            users.remove(object);
        }
    }
}
