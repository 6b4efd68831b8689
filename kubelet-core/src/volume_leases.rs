//! Keeps the files of a pod's volumes while a container that uses them starts.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::PodUid;

/// The leases on the volumes of a node's pods, and who may replace the files of a volume.
///
/// A runtime mounts the files of a container some time after their paths were found. Who replaces the files of a volume in
/// between, as is done for a config map that changed, shows the new files at once, but keeps the old ones for as long as a
/// [`VolumeLease`] holds them. Clones are equivalent.
///
/// The kubelet has no such leases. It finds the files of a container and removes superseded ones without regard to each
/// other.
///
/// ```
/// # use kubelet_core::{PodUid, VolumeLeases};
/// # fn main() -> std::io::Result<()> {
/// let volume = tempfile::tempdir()?;
/// let (old, leases) = (volume.path().canonicalize()?.join("old"), VolumeLeases::default());
/// // A container that is about to start uses a file.
/// let lease = leases.lease(&PodUid::new("1-2-3"));
/// lease.locked(volume.path(), |volume| lease.hold(&volume.path().join("old/file")))?;
/// // Who replaces it keeps it.
/// assert!(leases.locked(volume.path(), |volume| volume.is_held(&old))?);
/// drop(lease);
/// assert!(!leases.locked(volume.path(), |volume| volume.is_held(&old))?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct VolumeLeases {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Wakes who removes what is superseded.
    freed: Notify,
    /// Wakes all who wait until a pod has no lease.
    ended: Notify,
}

#[derive(Default)]
struct State {
    /// How many leases each pod has.
    pods: HashMap<PodUid, usize>,
    /// The paths that leases hold, and how often.
    held: BTreeMap<PathBuf, usize>,
    /// The volumes in which something superseded was kept.
    keeping: BTreeSet<PathBuf>,
    /// The volumes of `keeping` in which a lease has ended since.
    freed: BTreeSet<PathBuf>,
    /// The volumes that are locked, and by how many locks, with those that wait.
    locks: HashMap<PathBuf, (Arc<Mutex<()>>, usize)>,
}

impl VolumeLeases {
    /// A lease for one attempt to start a container of the pod. It holds nothing yet.
    pub fn lease(&self, pod: &PodUid) -> VolumeLease {
        *self.shared.state.lock().pods.entry(pod.clone()).or_default() += 1;
        self.make(Some(pod.clone()))
    }

    fn make(&self, pod: Option<PodUid>) -> VolumeLease {
        let inner = Inner {
            leases: self.clone(),
            pod,
            held: Mutex::default(),
        };
        VolumeLease {
            inner: Arc::new(inner),
        }
    }

    /// Runs `work` while nobody else has this volume locked: who finds paths in it sees one version of its files, also if
    /// they are replaced by several steps. Blocks the thread until then, and must not be called from within `work` for the
    /// same volume.
    ///
    /// # Errors
    ///
    /// If the folder of the volume cannot be found.
    pub fn locked<T>(&self, volume: &Path, work: impl FnOnce(&LockedVolume<'_>) -> T) -> io::Result<T> {
        let path = volume.canonicalize()?;
        let lock = Lock::of(&self.shared, path);
        let _guard = lock.mutex.lock();
        Ok(work(&LockedVolume {
            shared: &self.shared,
            path: &lock.path,
        }))
    }

    /// Waits until there are volumes in which [`is_held`](LockedVolume::is_held) has kept something that perhaps no lease
    /// holds any more, and returns their canonical paths. For one caller, who locks each and looks again.
    ///
    /// # Cancel safety
    ///
    /// A volume is returned once; nothing is lost if the future is dropped while it waits.
    pub async fn freed(&self) -> BTreeSet<PathBuf> {
        loop {
            let freed = std::mem::take(&mut self.shared.state.lock().freed);
            if !freed.is_empty() {
                return freed;
            }
            self.shared.freed.notified().await;
        }
    }

    /// Waits until no container of the pod is between the preparation of its mounts and the end of its start: then its
    /// volumes may be unmounted.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn ended(&self, pod: &PodUid) {
        loop {
            let ended = self.shared.ended.notified();
            tokio::pin!(ended);
            // Before it looks, so that it misses no end.
            ended.as_mut().enable();
            if !self.shared.state.lock().pods.contains_key(pod) {
                return;
            }
            ended.await;
        }
    }
}

impl fmt::Debug for VolumeLeases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.state.lock();
        let mut shown = f.debug_struct("VolumeLeases");
        shown
            .field("pods", &state.pods)
            .field("held", &state.held)
            .finish()
    }
}

/// A volume of which the files are neither replaced nor looked for by anybody else.
pub struct LockedVolume<'a> {
    shared: &'a Shared,
    path: &'a Path,
}

impl LockedVolume<'_> {
    /// The canonical path of its folder.
    pub fn path(&self) -> &Path {
        self.path
    }

    /// Whether a lease holds this path or one below it, so that it must be kept. Then [`VolumeLeases::freed`] returns the
    /// volume when a lease in it has ended. `path` is in the [folder](Self::path) of the volume, without any link.
    pub fn is_held(&self, path: &Path) -> bool {
        let mut state = self.shared.state.lock();
        // Paths are in order by their parts, so what is below a path follows it.
        let next = state
            .held
            .range::<Path, _>((Bound::Included(path), Bound::Unbounded))
            .next();
        let is_held = next.is_some_and(|(held, _)| held.starts_with(path));
        if is_held {
            state.keeping.insert(self.path.to_owned());
        }
        is_held
    }
}

/// What one attempt to start a container needs of its pod's volumes, from before its mounts are prepared until the runtime
/// has started it, or the attempt has ended. Clones are the same lease, which ends with the last of them.
///
/// By default, a lease that nobody regards.
#[derive(Clone)]
pub struct VolumeLease {
    inner: Arc<Inner>,
}

struct Inner {
    leases: VolumeLeases,
    pod: Option<PodUid>,
    held: Mutex<Vec<PathBuf>>,
}

impl VolumeLease {
    /// [`VolumeLeases::locked`]
    ///
    /// # Errors
    ///
    /// If the folder of the volume cannot be found.
    pub fn locked<T>(&self, volume: &Path, work: impl FnOnce(&LockedVolume<'_>) -> T) -> io::Result<T> {
        self.inner.leases.locked(volume, work)
    }

    /// Holds a file or folder in a volume that is [locked](Self::locked) now. `path` is canonical.
    pub fn hold(&self, path: &Path) {
        let mut state = self.inner.leases.shared.state.lock();
        *state.held.entry(path.to_owned()).or_default() += 1;
        self.inner.held.lock().push(path.to_owned());
    }
}

impl Default for VolumeLease {
    fn default() -> Self {
        VolumeLeases::default().make(None)
    }
}

impl fmt::Debug for VolumeLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("VolumeLease");
        shown
            .field("pod", &self.inner.pod)
            .field("held", &*self.inner.held.lock())
            .finish()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let shared = &self.leases.shared;
        let mut state = shared.state.lock();
        for path in self.held.get_mut().drain(..) {
            if lose_one(&mut state.held, &path) {
                state.held.remove(&path);
            }
            let volume = path.ancestors().find(|at| state.keeping.contains(*at));
            if let Some(volume) = volume {
                state.keeping.remove(volume);
                state.freed.insert(volume.to_owned());
                shared.freed.notify_one();
            }
        }
        let Some(pod) = &self.pod else { return };
        if let Some(leases) = state.pods.get_mut(pod) {
            *leases -= 1;
            if *leases == 0 {
                state.pods.remove(pod);
                shared.ended.notify_waiters();
            }
        }
    }
}

/// Returns whether none is left.
fn lose_one(held: &mut BTreeMap<PathBuf, usize>, path: &Path) -> bool {
    held.get_mut(path).is_some_and(|count| {
        *count -= 1;
        *count == 0
    })
}

/// The lock of a volume, which exists while somebody has it or waits for it.
struct Lock<'a> {
    shared: &'a Shared,
    path: PathBuf,
    mutex: Arc<Mutex<()>>,
}

impl<'a> Lock<'a> {
    fn of(shared: &'a Shared, path: PathBuf) -> Self {
        let mut state = shared.state.lock();
        let (mutex, users) = state.locks.entry(path.clone()).or_default();
        *users += 1;
        let mutex = mutex.clone();
        drop(state);
        Self { shared, path, mutex }
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        if let Some((_, users)) = state.locks.get_mut(&self.path) {
            *users -= 1;
            if *users == 0 {
                state.locks.remove(&self.path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    fn is_held(leases: &VolumeLeases, volume: &Path, below: &str) -> bool {
        leases
            .locked(volume, |volume| volume.is_held(&volume.path().join(below)))
            .unwrap()
    }

    fn hold(lease: &VolumeLease, volume: &Path, path: &str) {
        lease
            .locked(volume, |volume| lease.hold(&volume.path().join(path)))
            .unwrap();
    }

    /// What is freed already.
    async fn freed(leases: &VolumeLeases) -> Vec<PathBuf> {
        let freed = timeout(Duration::from_millis(1), leases.freed()).await;
        freed.unwrap_or_default().into_iter().collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_path_is_held_by_what_is_below_it_until_the_last_lease_ends() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let (leases, pod) = (VolumeLeases::default(), PodUid::new("1"));
        let (first, second) = (leases.lease(&pod), leases.lease(&pod));
        hold(&first, &root, "..1/deep/key");
        hold(&first, &root, "..1/deep/key");
        hold(&second, &root, "..1/other");
        hold(&second, &root, "..10");
        for (path, held) in [
            ("..1", true),
            ("..1/deep", true),
            ("..1/deep/key", true),
            ("..10", true),
            ("..1/de", false),
            ("..1/deep/key/below", false),
            ("..", false),
            ("..2", false),
            ("..100", false),
        ] {
            assert_eq!(is_held(&leases, &root, path), held, "{path}");
        }
        let clone = first.clone();
        drop(first);
        assert!(freed(&leases).await.is_empty(), "a clone is the same lease");
        drop(clone);
        assert_eq!(freed(&leases).await, std::slice::from_ref(&root));
        assert!(is_held(&leases, &root, "..1"), "the second lease holds it");
        drop(second);
        assert_eq!(freed(&leases).await, std::slice::from_ref(&root));
        assert!(!is_held(&leases, &root, "..1") && freed(&leases).await.is_empty());
        let state = leases.shared.state.lock();
        assert!(state.held.is_empty() && state.pods.is_empty() && state.locks.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_freed_where_nothing_was_kept() {
        let root = tempfile::tempdir().unwrap();
        let leases = VolumeLeases::default();
        let lease = leases.lease(&PodUid::new("1"));
        hold(&lease, root.path(), "..1/key");
        assert!(!is_held(&leases, root.path(), "..2"));
        drop(lease);
        assert!(freed(&leases).await.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_is_waited_for_and_no_other() {
        let (leases, pod) = (VolumeLeases::default(), PodUid::new("1"));
        let (one, two) = (leases.lease(&pod), leases.lease(&pod));
        leases.ended(&PodUid::new("2")).await;
        let waiting = tokio::spawn({
            let leases = leases.clone();
            async move { leases.ended(&pod).await }
        });
        tokio::task::yield_now().await;
        drop(one);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(two);
        waiting.await.unwrap();
        // One that is nobody's ends, too.
        drop(VolumeLease::default());
    }

    #[test]
    fn one_at_a_time_has_a_volume() {
        let root = tempfile::tempdir().unwrap();
        let leases = VolumeLeases::default();
        let inside = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let work = |_: &LockedVolume<'_>| {
                            use std::sync::atomic::Ordering::SeqCst;
                            assert_eq!(inside.fetch_add(1, SeqCst), 0);
                            std::thread::yield_now();
                            inside.fetch_sub(1, SeqCst);
                        };
                        leases.locked(root.path(), work).unwrap();
                    }
                });
            }
        });
        assert!(leases.shared.state.lock().locks.is_empty());
        assert!(leases.locked(&root.path().join("none"), |_| ()).is_err());
    }
}
