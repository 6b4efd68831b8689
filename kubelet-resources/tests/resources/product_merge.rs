//! The merge of hints, held to a straightforward one that goes through each way to choose one hint for each resource, as the
//! kubelet does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_resources::topology::{
    HintProvider, ResourceHints, TopologyHint, TopologyMerger, TopologyOptions, TopologyPolicy, TopologyScope,
};
use kubelet_resources::{Allocator, BoxError, Machine, NumaNode, NumaSet, ResourcesState, Result};
use proptest::prelude::*;

use crate::pods;

/// `policy`, without the restriction to one node.
struct ProductMerge<'a> {
    machine: &'a Machine,
    closest: bool,
    /// The largest of the smallest hints.
    wanted: usize,
}

impl ProductMerge<'_> {
    fn all(&self) -> NumaSet {
        self.machine.numa_nodes().unwrap()
    }

    fn merge(&self, lists: &[Vec<TopologyHint>]) -> TopologyHint {
        let mut best = None;
        self.each(lists, &mut Vec::new(), &mut |choice| {
            let candidate = self.intersect(choice);
            if self.replaces(best, candidate) {
                best = Some(candidate);
            }
        });
        best.unwrap_or(TopologyHint::new(self.all(), false))
    }

    fn each(
        &self,
        lists: &[Vec<TopologyHint>],
        choice: &mut Vec<TopologyHint>,
        visit: &mut dyn FnMut(&[TopologyHint]),
    ) {
        let Some((list, rest)) = lists.split_first() else {
            return visit(choice);
        };
        for hint in list {
            choice.push(*hint);
            self.each(rest, choice, visit);
            choice.pop();
        }
    }

    fn intersect(&self, choice: &[TopologyHint]) -> TopologyHint {
        let mut sets = choice.iter().filter_map(|hint| hint.nodes);
        let nodes = sets.clone().fold(self.all(), NumaSet::and);
        let first = sets.next();
        let preferred = choice.iter().all(|hint| hint.preferred) && sets.all(|set| Some(set) == first);
        TopologyHint::new(nodes, preferred)
    }

    /// `HintMerger.compare`, case by case.
    fn replaces(&self, current: Option<TopologyHint>, candidate: TopologyHint) -> bool {
        let size = |hint: TopologyHint| hint.nodes.unwrap().len();
        let wanted = self.wanted;
        if size(candidate) == 0 {
            return false;
        }
        let Some(current) = current else { return true };
        if current.preferred != candidate.preferred {
            return candidate.preferred;
        }
        if current.preferred {
            return self.fits_better(current, candidate);
        }
        if size(current) > wanted {
            return self.fits_better(current, candidate);
        }
        if size(current) == wanted {
            return size(candidate) == wanted && self.fits_better(current, candidate);
        }
        if size(candidate) > wanted {
            return false;
        }
        if size(candidate) != size(current) {
            return size(candidate) > size(current);
        }
        self.fits_better(current, candidate)
    }

    fn fits_better(&self, current: TopologyHint, candidate: TopologyHint) -> bool {
        let (current, candidate) = (current.nodes.unwrap(), candidate.nodes.unwrap());
        if current == candidate {
            return false;
        }
        if !self.closest || current.len() != candidate.len() {
            return !current.is_narrower_than(candidate);
        }
        let (current_average, candidate_average) = (self.average(current), self.average(candidate));
        match current_average == candidate_average {
            true => candidate.bits() < current.bits(),
            false => candidate_average < current_average,
        }
    }

    fn average(&self, nodes: NumaSet) -> f64 {
        let (mut sum, mut count) = (0.0, 0.0);
        for from in nodes.iter() {
            for to in nodes.iter() {
                sum += self.machine.nodes[from].distances.as_ref().unwrap()[to] as f64;
                count += 1.0;
            }
        }
        sum / count
    }
}

fn product_merge(
    machine: &Machine,
    policy: TopologyPolicy,
    closest: bool,
    providers: &[ResourceHints],
) -> (TopologyHint, bool) {
    let mut lists = Vec::new();
    for hints in providers {
        if hints.is_empty() {
            lists.push(vec![TopologyHint::any(true)]);
        }
        for hints in hints.values() {
            lists.push(match hints {
                None => vec![TopologyHint::any(true)],
                Some(hints) if hints.is_empty() => vec![TopologyHint::any(false)],
                Some(hints) => hints.clone(),
            });
        }
    }
    let single = policy == TopologyPolicy::SingleNumaNode;
    if single {
        for list in &mut lists {
            list.retain(|hint| hint.preferred && hint.nodes.is_none_or(|nodes| nodes.len() == 1));
        }
    }
    let smallest = |list: &Vec<TopologyHint>| {
        let sizes = list.iter().filter_map(|hint| hint.nodes);
        sizes.map(NumaSet::len).min()
    };
    let merge = ProductMerge {
        machine,
        closest: closest && !single,
        wanted: lists.iter().filter_map(smallest).max().unwrap_or(0),
    };
    let mut best = merge.merge(&lists);
    if single && best.nodes == Some(merge.all()) {
        best.nodes = None;
    }
    (best, policy == TopologyPolicy::BestEffort || best.preferred)
}

fn machine(distances: &[Vec<u64>]) -> Machine {
    let node = |(id, distances): (usize, &Vec<u64>)| NumaNode {
        id,
        distances: Some(distances.clone()),
        ..NumaNode::default()
    };
    Machine {
        nodes: distances.iter().enumerate().map(node).collect(),
    }
}

fn merger(machine: &Machine, policy: TopologyPolicy, closest: bool) -> TopologyMerger {
    let mut options = TopologyOptions::default();
    options.prefer_closest_numa = closest;
    TopologyMerger::new(machine, policy, options).unwrap()
}

fn hint(nodes: usize) -> impl Strategy<Value = TopologyHint> {
    // Some hints name nodes that the machine does not have.
    let set = prop_oneof![4 => (1..1_u64 << nodes).prop_map(Some), 1 => Just(None), 1 => (1..4_u64 << nodes).prop_map(Some)];
    (set, any::<bool>()).prop_map(|(nodes, preferred)| TopologyHint {
        nodes: nodes.map(NumaSet::from_bits),
        preferred,
    })
}

fn provider(nodes: usize) -> impl Strategy<Value = ResourceHints> {
    let count = prop_oneof![4 => 0_usize..6, 1 => 6_usize..40];
    let hints = count.prop_flat_map(move |count| proptest::collection::vec(hint(nodes), count));
    let hints = proptest::option::weighted(0.9, hints);
    proptest::collection::btree_map("[a-c]", hints, 0..3)
}

fn distances(nodes: usize) -> impl Strategy<Value = Vec<Vec<u64>>> {
    let row = proptest::collection::vec(prop_oneof![Just(10_u64), Just(11), Just(21), Just(31)], nodes);
    proptest::collection::vec(row, nodes)
}

fn setting() -> impl Strategy<Value = (Vec<Vec<u64>>, Vec<ResourceHints>)> {
    (1_usize..6).prop_flat_map(|nodes| {
        let providers = proptest::collection::vec(provider(nodes), 0..4);
        // The product must stay feasible.
        let providers = providers.prop_filter("too many ways", |providers| {
            let lists = providers.iter().flat_map(|hints| hints.values().flatten());
            lists.map(|list| list.len().max(1)).product::<usize>() < 100_000
        });
        (distances(nodes), providers)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn merges_as_the_product_of_all_hints((distances, providers) in setting(), closest in any::<bool>()) {
        let machine = machine(&distances);
        for policy in [TopologyPolicy::BestEffort, TopologyPolicy::Restricted, TopologyPolicy::SingleNumaNode] {
            let merged = merger(&machine, policy, closest).merge(providers.clone());
            prop_assert_eq!(merged, product_merge(&machine, policy, closest, &providers), "{:?}", policy);
        }
    }
}

/// Every set of nodes is possible for each resource, those of one size are preferred.
fn all_sets(nodes: usize, preferred: usize) -> ResourceHints {
    let sets = NumaSet::of(0..nodes).unwrap().subsets();
    let hints = sets.map(|set| TopologyHint::new(set, set.len() == preferred));
    ResourceHints::from([("r".to_owned(), Some(hints.collect()))])
}

/// How long the merge takes on eight NUMA nodes, and the kubelet's way as far as it is feasible. Run by hand, in a release build.
#[test]
#[ignore = "a measurement: run it with --release -- --ignored --nocapture"]
fn how_long_it_takes() {
    let machine = machine(&vec![vec![10; 8]; 8]);
    let merger = merger(&machine, TopologyPolicy::Restricted, false);
    for providers in 1..=4 {
        // The second case has no set that all prefer.
        for preferred in [[1, 1, 1, 1], [1, 2, 1, 2]] {
            let hints: Vec<_> = preferred[..providers]
                .iter()
                .map(|size| all_sets(8, *size))
                .collect();
            let (merged, took) = timed(|| merger.merge(hints.clone()));
            let text = match providers {
                ..4 => {
                    let product = || product_merge(&machine, TopologyPolicy::Restricted, false, &hints);
                    let (expected, product_took) = timed(product);
                    assert_eq!(merged, expected);
                    format!("{product_took:?}")
                }
                _ => "255 times as long as with three".to_owned(),
            };
            println!("{providers} providers preferring {preferred:?}: {took:?}; product: {text}");
        }
    }
}

/// Every set of nodes is possible, single nodes are preferred.
struct AnyNodes(ResourceHints);

impl HintProvider for AnyNodes {
    fn container_hints(&mut self, _: &Arc<Pod>, _: &Container) -> ResourceHints {
        self.0.clone()
    }

    fn pod_hints(&mut self, _: &Arc<Pod>) -> ResourceHints {
        self.0.clone()
    }

    fn allocate(&mut self, _: &Arc<Pod>, _: &Container, _: TopologyHint) -> Result<(), BoxError> {
        Ok(())
    }
}

/// How long an admission takes with two sockets of 64 cores and two CPUs each, 8 NUMA nodes and four providers of hints.
#[test]
#[ignore = "a measurement: run it with --release -- --ignored --nocapture"]
fn how_long_an_admission_takes() {
    let machine = pods::machine(8, 16, 2, 4);
    let config = pods::config(TopologyPolicy::Restricted, TopologyScope::Container);
    let mut allocator = Allocator::new(&machine, &config, ResourcesState::default()).unwrap();
    for _ in 0..2 {
        allocator = allocator.with_provider(Box::new(AnyNodes(all_sets(8, 1))));
    }
    let started = Instant::now();
    let pods: Vec<_> = (0..16)
        .map(|number| pods::simple_pod(&format!("p{number}"), "8", "1Gi"))
        .collect();
    for (number, pod) in pods.iter().enumerate() {
        allocator.admit(pod, Some(&pods[..number])).unwrap();
    }
    println!(
        "{:?} for each of {} pods",
        started.elapsed() / pods.len() as u32,
        pods.len()
    );
}

fn timed<T>(work: impl Fn() -> T) -> (T, Duration) {
    let started = Instant::now();
    let result = work();
    (result, started.elapsed())
}
