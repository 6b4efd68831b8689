//! What happened to a pod between two lists: the pod of each list in, events out. No time, no I/O.

use std::ops::ControlFlow;

use kubelet_core::runtime::{Container, ContainerState, RuntimePod, Sandbox, SandboxState};
use kubelet_core::{ContainerId, PodLifecycleEvent, PodLifecycleEventType, PodLifecycleEvents};

/// The states of a container that the PLEG distinguishes (`plegContainerState`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    Exited,
    /// A container that was created and not started counts as unknown, as in the kubelet.
    Unknown,
    NonExistent,
}

impl From<ContainerState> for State {
    fn from(state: ContainerState) -> Self {
        match state {
            ContainerState::Running => State::Running,
            ContainerState::Exited => State::Exited,
            ContainerState::Created | ContainerState::Unknown => State::Unknown,
        }
    }
}

impl From<SandboxState> for State {
    fn from(state: SandboxState) -> Self {
        match state {
            SandboxState::Ready => State::Running,
            SandboxState::NotReady => State::Exited,
        }
    }
}

/// The transition table (`generateEvents`).
fn event_types(old: State, new: State) -> &'static [PodLifecycleEventType] {
    use PodLifecycleEventType::*;
    match (old, new) {
        (old, new) if old == new => &[],
        (_, State::Running) => &[ContainerStarted],
        (_, State::Exited) => &[ContainerDied],
        (_, State::Unknown) => &[ContainerChanged],
        (State::Exited, State::NonExistent) => &[ContainerRemoved],
        // It went before anybody saw it end.
        (_, State::NonExistent) => &[ContainerDied, ContainerRemoved],
    }
}

/// The events that lead from the `old` record of a pod to the `new` one; `None` is a pod that is not there.
/// Sandboxes count as containers. In the order of the kubelet: the containers, then the sandboxes of the old
/// record, then what only the new one has.
///
/// Allocates nothing where nothing changed.
pub(crate) fn events(old: Option<&RuntimePod>, new: Option<&RuntimePod>) -> PodLifecycleEvents {
    let mut events = PodLifecycleEvents::new();
    let _: ControlFlow<()> = for_each_change(old, new, |id, old, new| {
        // An id that a record bears twice is one container.
        if events
            .iter()
            .any(|event: &PodLifecycleEvent| event.container.as_ref() == Some(id))
        {
            return ControlFlow::Continue(());
        }
        for event_type in event_types(old, new) {
            events.push(PodLifecycleEvent {
                event_type: *event_type,
                container: Some(id.clone()),
            });
        }
        ControlFlow::Continue(())
    });
    events
}

/// Whether [`events`] would return any event.
pub(crate) fn differ(old: Option<&RuntimePod>, new: Option<&RuntimePod>) -> bool {
    for_each_change(old, new, |_, _, _| ControlFlow::Break(())).is_break()
}

/// Whether two records of one pod have the same containers and sandboxes, each at its place and in its state. Then
/// they do not [`differ`]. This is the quick check for a pod of a list that was built anew.
///
/// It compares whole ids, and it reads nothing else: names and images make no event, and comparing them takes longer than
/// all of this.
pub(crate) fn have_same_states(old: &RuntimePod, new: &RuntimePod) -> bool {
    let containers = || old.containers.iter().zip(&new.containers);
    let sandboxes = || old.sandboxes.iter().zip(&new.sandboxes);
    old.containers.len() == new.containers.len()
        && old.sandboxes.len() == new.sandboxes.len()
        && containers().all(|(old, new)| old.state == new.state && old.id == new.id)
        && sandboxes().all(|(old, new)| old.state == new.state && old.id == new.id)
}

/// The containers and sandboxes of a record, by id.
pub(crate) fn members(pod: &RuntimePod) -> impl Iterator<Item = &ContainerId> {
    let containers = pod.containers.iter().map(|container| &container.id);
    containers.chain(pod.sandboxes.iter().map(|sandbox| &sandbox.id))
}

/// Whether a record has this container or sandbox.
pub(crate) fn has(pod: Option<&RuntimePod>, id: &ContainerId) -> bool {
    pod.is_some_and(|pod| members(pod).any(|member| member == id))
}

fn for_each_change<B>(
    old: Option<&RuntimePod>,
    new: Option<&RuntimePod>,
    mut change: impl FnMut(&ContainerId, State, State) -> ControlFlow<B>,
) -> ControlFlow<B> {
    let mut compare = |id, old, new| {
        if old == new {
            return ControlFlow::Continue(());
        }
        change(id, old, new)
    };
    // Whether each container of the old record stands at the same place in the new one: then there are no others.
    let mut in_place =
        containers(old).len() == containers(new).len() && sandboxes(old).len() == sandboxes(new).len();
    for (position, container) in containers(old).iter().enumerate() {
        let (state, found_in_place) = state_of(new, &container.id, position, containers_at);
        in_place &= found_in_place;
        compare(&container.id, container.state.into(), state)?;
    }
    for (position, sandbox) in sandboxes(old).iter().enumerate() {
        let (state, found_in_place) = state_of(new, &sandbox.id, position, sandboxes_at);
        in_place &= found_in_place;
        compare(&sandbox.id, sandbox.state.into(), state)?;
    }
    if in_place {
        return ControlFlow::Continue(());
    }
    for (position, container) in containers(new).iter().enumerate() {
        if let (State::NonExistent, _) = state_of(old, &container.id, position, containers_at) {
            compare(&container.id, State::NonExistent, container.state.into())?;
        }
    }
    for (position, sandbox) in sandboxes(new).iter().enumerate() {
        if let (State::NonExistent, _) = state_of(old, &sandbox.id, position, sandboxes_at) {
            compare(&sandbox.id, State::NonExistent, sandbox.state.into())?;
        }
    }
    ControlFlow::Continue(())
}

/// The state of a container or sandbox in a record, and whether it has the same place there. Runtimes mostly list
/// in one order, so that place is looked at first.
fn state_of(
    pod: Option<&RuntimePod>,
    id: &ContainerId,
    position: usize,
    member_at: impl Fn(&RuntimePod, usize) -> Option<(&ContainerId, State)>,
) -> (State, bool) {
    if let Some((member, state)) = pod.and_then(|pod| member_at(pod, position))
        && member == id
    {
        return (state, true);
    }
    if let Some(container) = containers(pod).iter().find(|container| container.id == *id) {
        return (container.state.into(), false);
    }
    match sandboxes(pod).iter().find(|sandbox| sandbox.id == *id) {
        Some(sandbox) => (sandbox.state.into(), false),
        None => (State::NonExistent, false),
    }
}

fn containers_at(pod: &RuntimePod, position: usize) -> Option<(&ContainerId, State)> {
    let container = pod.containers.get(position)?;
    Some((&container.id, container.state.into()))
}

fn sandboxes_at(pod: &RuntimePod, position: usize) -> Option<(&ContainerId, State)> {
    let sandbox = pod.sandboxes.get(position)?;
    Some((&sandbox.id, sandbox.state.into()))
}

fn containers(pod: Option<&RuntimePod>) -> &[Container] {
    pod.map_or(&[], |pod| &pod.containers)
}

fn sandboxes(pod: Option<&RuntimePod>) -> &[Sandbox] {
    pod.map_or(&[], |pod| &pod.sandboxes)
}

#[cfg(test)]
mod tests {
    use kubelet_core::{PodKey, PodUid};

    use super::*;
    use PodLifecycleEventType::*;

    fn pod(containers: &[(&str, ContainerState)], sandboxes: &[(&str, SandboxState)]) -> RuntimePod {
        let mut pod = RuntimePod::empty(PodUid::from("u"), PodKey::new("default", "p"));
        pod.containers = containers
            .iter()
            .map(|(id, state)| Container {
                id: ContainerId::new("fake", *id),
                name: (*id).to_owned(),
                image: String::new(),
                image_id: String::new(),
                image_ref: String::new(),
                image_runtime_handler: String::new(),
                hash: 0,
                state: *state,
                sandbox_id: String::new(),
                created_at: None,
            })
            .collect();
        pod.sandboxes = sandboxes
            .iter()
            .map(|(id, state)| Sandbox {
                id: ContainerId::new("fake", *id),
                state: *state,
                attempt: 0,
                created_at: None,
            })
            .collect();
        pod
    }

    fn told(old: Option<&RuntimePod>, new: Option<&RuntimePod>) -> Vec<(String, PodLifecycleEventType)> {
        let events = events(old, new);
        assert_eq!(events.is_empty(), !differ(old, new));
        events
            .into_iter()
            .map(|event| (event.container.unwrap().id().to_owned(), event.event_type))
            .collect()
    }

    /// Every old state against every new one, for a container and, where it can be, for a sandbox.
    #[test]
    fn the_transition_table() {
        use ContainerState::{Created, Exited, Running, Unknown};
        let (gone, same): (Option<ContainerState>, &[PodLifecycleEventType]) = (None, &[]);
        let died_and_removed: &[_] = &[ContainerDied, ContainerRemoved];
        #[rustfmt::skip]
        let table: [(Option<ContainerState>, Option<ContainerState>, &[PodLifecycleEventType]); 25] = [
            (gone,          gone,          same),
            (gone,          Some(Created), &[ContainerChanged]),
            (gone,          Some(Running), &[ContainerStarted]),
            (gone,          Some(Exited),  &[ContainerDied]),
            (gone,          Some(Unknown), &[ContainerChanged]),
            (Some(Created), gone,          died_and_removed),
            (Some(Created), Some(Created), same),
            (Some(Created), Some(Running), &[ContainerStarted]),
            (Some(Created), Some(Exited),  &[ContainerDied]),
            (Some(Created), Some(Unknown), same),
            (Some(Running), gone,          died_and_removed),
            (Some(Running), Some(Created), &[ContainerChanged]),
            (Some(Running), Some(Running), same),
            (Some(Running), Some(Exited),  &[ContainerDied]),
            (Some(Running), Some(Unknown), &[ContainerChanged]),
            (Some(Exited),  gone,          &[ContainerRemoved]),
            (Some(Exited),  Some(Created), &[ContainerChanged]),
            (Some(Exited),  Some(Running), &[ContainerStarted]),
            (Some(Exited),  Some(Exited),  same),
            (Some(Exited),  Some(Unknown), &[ContainerChanged]),
            (Some(Unknown), gone,          died_and_removed),
            (Some(Unknown), Some(Created), same),
            (Some(Unknown), Some(Running), &[ContainerStarted]),
            (Some(Unknown), Some(Exited),  &[ContainerDied]),
            (Some(Unknown), Some(Unknown), same),
        ];
        let sandbox_state = |state| match state {
            Some(Running) => Some(Some(SandboxState::Ready)),
            Some(Exited) => Some(Some(SandboxState::NotReady)),
            None => Some(None),
            Some(Created | Unknown) => None,
        };
        for (old, new, expected) in table {
            let of = |state: Option<_>| state.map(|state| pod(&[("c", state)], &[]));
            let expected: Vec<_> = expected.iter().map(|event| ("c".to_owned(), *event)).collect();
            assert_eq!(
                told(of(old).as_ref(), of(new).as_ref()),
                expected,
                "{old:?} -> {new:?}"
            );
            if let (Some(old), Some(new)) = (sandbox_state(old), sandbox_state(new)) {
                let of = |state: Option<_>| state.map(|state| pod(&[], &[("c", state)]));
                assert_eq!(
                    told(of(old).as_ref(), of(new).as_ref()),
                    expected,
                    "{old:?} -> {new:?}"
                );
            }
        }
    }

    #[test]
    fn in_the_order_of_the_kubelet() {
        use ContainerState::{Exited, Running};
        let old = pod(&[("a", Running), ("b", Running)], &[("s1", SandboxState::Ready)]);
        let new = pod(
            &[("c", Running), ("b", Exited)],
            &[("s2", SandboxState::Ready), ("s1", SandboxState::NotReady)],
        );
        let expected = [
            ("a", ContainerDied),
            ("a", ContainerRemoved),
            ("b", ContainerDied),
            ("s1", ContainerDied),
            ("c", ContainerStarted),
            ("s2", ContainerStarted),
        ];
        assert_eq!(
            told(Some(&old), Some(&new)),
            expected.map(|(id, event)| (id.to_owned(), event))
        );
    }

    #[test]
    fn an_id_listed_twice_is_one_container() {
        let twice = pod(
            &[("a", ContainerState::Running), ("a", ContainerState::Exited)],
            &[("a", SandboxState::Ready)],
        );
        assert_eq!(told(None, Some(&twice)), [("a".to_owned(), ContainerStarted)]);
    }
}
