//! The clauses of CRI. The tests, the list and the docs are generated from this table.

/// Passes the clauses of one group to another macro: `{ arguments } group "about" optional { clause: "sentence"; … }`.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_cri {
    (runtime, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments runtime
        "The runtime itself" false {
        it_has_a_name_and_a_version:
            "The runtime's name is one word that can be the prefix of a container id. It has a version, and its API \
             version is `v1`.";
        it_says_that_it_is_ready:
            "Its status has the conditions `RuntimeReady` and `NetworkReady`, and both are true.";
        it_says_what_is_used_on_disk:
            "`ImageFsInfo` has a file system with its folder, the used bytes and the time of measurement. A Go \
             kubelet rejects a runtime that does not answer this call.";
    } } };
    (sandboxes, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments sandboxes
        "Sandboxes from run to removal" false {
        a_sandbox_is_ready_once_it_was_run:
            "After `RunPodSandbox` returns, the sandbox is ready, in its status and in the list, which has it once.";
        a_sandbox_is_reported_as_requested:
            "Metadata, labels and annotations are reported as requested, with the time of creation.";
        a_stopped_sandbox_is_not_ready_and_stays:
            "A stopped sandbox is not ready, in its status and, at once or soon after, in the list, where it stays until \
             it is removed.";
        a_removed_sandbox_is_not_found:
            "A removed sandbox is in no list, and its status is `NotFound`.";
        an_unknown_sandbox_is_not_found:
            "The status of an unknown sandbox is `NotFound`.";
        a_stop_kills_its_containers:
            "Stopping the sandbox ends its containers, which stay in the list.";
        a_removal_takes_its_containers_along:
            "Removing the sandbox removes its containers, including those that were never started.";
        the_next_attempt_is_another_sandbox:
            "The next attempt of a pod's sandbox is another sandbox, and each is removed separately.";
        it_takes_no_container_to_be_ready:
            "A sandbox is ready whatever the state of its containers, and also without containers.";
    } } };
    (containers, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments containers
        "Containers from create to removal" false {
        what_is_created_is_not_started:
            "A created container is in the state created. It has a time of creation and no time of start.";
        what_is_started_runs:
            "After `StartContainer` returns, the container runs, in its status and in the list, and its times are in \
             order.";
        a_container_is_reported_as_requested:
            "Metadata, labels, annotations, image and sandbox are reported as requested, in the status and in the \
             list.";
        nothing_is_started_twice:
            "The start of a running or ended container is an error, and changes nothing.";
        what_ended_stays_until_it_is_removed:
            "An ended container stays in the list until it is removed. It started and ended after it was created.";
        what_is_removed_is_not_found:
            "A removed container, whether ended, stopped or never started, is in no list, and its status is \
             `NotFound`.";
        a_removal_kills_what_runs:
            "Removing a running container kills it.";
        an_unknown_container_is_not_found:
            "The status of an unknown container is `NotFound`.";
        there_is_none_without_a_ready_sandbox:
            "In a stopped or unknown sandbox no container can be started.";
        a_restart_is_a_container_of_its_own:
            "The next attempt is another container. The ended one does not change, and each is removed separately.";
        a_start_that_fails_can_be_cleaned_up:
            "A container with a missing program does not run. It can be removed, and then its name is free for \
             another attempt.";
    } } };
    (idempotence, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments idempotence
        "Repeated and concurrent calls" false {
        stop_and_removal_of_what_is_not_there_do_no_harm:
            "Stopping or removing something that does not exist succeeds, or returns `NotFound`.";
        a_second_stop_of_a_container_changes_nothing:
            "Stopping an ended container succeeds, and its exit does not change.";
        sandboxes_are_stopped_and_removed_any_number_of_times:
            "A sandbox can be stopped and removed any number of times.";
        stops_at_once_all_succeed:
            "Concurrent stops of one container or sandbox all succeed.";
    } } };
    (ends, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments ends
        "How containers end" false {
        exit_codes_are_the_programs_own:
            "The exit code is the program's own.";
        an_end_has_a_reason:
            "An ended container has a reason of one word.";
        a_stop_returns_once_it_ended:
            "When `StopContainer` returns, the container has ended.";
    } } };
    (lists, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments lists
        "Filters" false {
        containers_are_found_by_what_they_are:
            "`ListContainers` filters by id, state, sandbox and labels, and by several of them.";
        sandboxes_are_found_by_what_they_are:
            "`ListPodSandbox` filters by id, state and labels.";
    } } };
    (cancellation, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments cancellation
        "Calls that their caller drops, as at a deadline" false {
        a_run_of_a_sandbox_cut_short_can_be_tried_again:
            "A `RunPodSandbox` that is dropped at any await leaves nothing, or a sandbox that appears in the list and \
             can be removed. Then the same sandbox can be run, and a container in it.";
        a_creation_cut_short_leaves_no_name_taken:
            "A `CreateContainer` that is dropped leaves a container in the list, or one that can be created. A \
             container in the list starts, or can be removed and created again.";
        a_start_cut_short_shows_what_it_came_to:
            "A `StartContainer` that is dropped leaves the container in the list. It can be stopped and removed, and \
             the next attempt runs.";
        a_stop_cut_short_can_be_tried_again:
            "A stop of a container or sandbox that is dropped can be retried, and ends it.";
    } } };
    (concurrency, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments concurrency
        "Concurrent calls" false {
        pods_live_and_die_side_by_side:
            "Pods are run, restarted, stopped and removed concurrently.";
        containers_of_the_same_name_in_two_pods_are_two:
            "Containers with the same name in two pods are independent.";
        containers_of_one_pod_start_side_by_side:
            "Containers of one pod are created and started concurrently, and each ends separately.";
    } } };
    (engine, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments engine
        "With the engine above: `CriRuntime` on the services. A wrapper in between injects errors, hanging calls and wrong lists" false {
        a_pod_runs_and_ends:
            "A pod with two containers runs, is killed, and leaves nothing.";
        a_container_that_ended_is_restarted:
            "A container that ends is restarted as another attempt, and the exit of each attempt is reported.";
        a_sandbox_whose_run_fails_or_hangs_is_tried_again:
            "A `RunPodSandbox` that fails, hangs or loses its reply is retried, and one container runs in the end.";
        a_creation_that_fails_or_hangs_is_tried_again:
            "A `CreateContainer` that fails, hangs or loses its reply is retried, and one container runs in the end.";
        a_lost_reply_of_start_is_one_container:
            "If the runtime starts a container but the reply is lost or never comes, one container runs in the end.";
        a_start_that_fails_or_hangs_is_tried_again:
            "A start that does not reach the runtime is retried, and one container runs in the end.";
        a_stop_that_fails_or_hangs_is_tried_again:
            "A stop that fails, hangs or loses its reply is retried, and nothing runs in the end.";
        a_removal_that_fails_or_hangs_is_tried_again:
            "A removal that fails, hangs or loses its reply is retried, and nothing is left in the end.";
        a_sandbox_whose_stop_or_removal_fails_or_hangs_is_tried_again:
            "A stop or removal of a sandbox that fails, hangs or loses its reply is retried, and nothing is left in \
             the end.";
        slow_calls_only_take_time:
            "If every call is slow, a pod still runs and ends.";
        a_runtime_that_was_away_finds_its_pods_as_they_were:
            "If no call reaches the runtime for a while, the same containers run afterwards.";
        what_the_lists_omitted_is_found_again_and_ended:
            "When lists that omitted sandboxes and containers are correct again, the pod runs. When it is killed, \
             nothing is left, whatever was started in between.";
        a_list_that_names_each_twice_changes_nothing:
            "While the list has each container twice, the same containers run.";
        the_order_of_the_list_means_nothing:
            "The same containers run, whatever the order of the lists.";
        another_agent_takes_over_what_runs:
            "Another agent on the same runtime finds the same containers, and starts none.";
        an_agent_that_dies_between_create_and_start_leaves_one_container:
            "If an agent dies after the creation of a container and before its start is done, the next agent runs the \
             pod, with each container once.";
    } } };
    (images, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments images
        "Images" false {
        an_image_at_hand_has_id_and_size:
            "The image of the fixture's workloads exists, has an id and a size, and can be found by its id.";
        what_is_listed_is_at_hand:
            "Each image of the list can be found by its id.";
        removal_of_what_is_not_there_is_a_success:
            "The removal of a missing image succeeds.";
    } } };
    (capabilities, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments capabilities
        "Missing capabilities" false {
        what_it_does_not_offer_is_refused_as_unimplemented:
            "A call that needs a missing capability (`exec`, `logs`, `stats`, `events`) returns `Unimplemented`.";
    } } };
    (signals, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments signals
        "Stop signals and grace periods" true {
        the_stop_signal_comes_first:
            "A stop sends the stop signal first. A container that handles it ends with its own exit code, and the \
             stop does not wait for the end of the grace period.";
        who_ignores_it_is_killed_when_the_grace_is_over:
            "A container that ignores the stop signal is killed at the end of the grace period, and ends with 137.";
        no_grace_is_a_kill_at_once:
            "Without a grace period the container is killed at once, and ends with 137.";
        a_stop_of_the_sandbox_ends_a_stop_that_waits:
            "Stopping the sandbox kills a container whose stop is waiting, and both stops return.";
        a_stop_that_waits_can_be_given_up_and_hurried:
            "A stop that waits can be dropped. Another stop without a grace period kills the container.";
    } } };
    (restart, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments restart
        "Containers outlive the runtime" true {
        what_ran_is_found_again:
            "After the runtime is closed and opened again, running containers still run, in their sandbox, with the \
             same labels and times.";
        what_ended_is_found_again_as_it_ended:
            "Ended containers are found again, with their times, exit codes and reasons.";
        what_was_not_started_can_be_started_or_cleared_away:
            "A container that was created and not started can be started, or its start returns an error. It can be \
             removed, and the next attempt runs.";
        what_was_removed_stays_removed:
            "Removed containers do not come back.";
        what_was_found_again_can_be_stopped_and_removed:
            "A container that was found again can be stopped and removed.";
        an_agent_on_the_runtime_opened_again_takes_over_what_runs:
            "An agent on the reopened runtime finds the same containers of a pod, and starts none.";
    } } };
    (logs, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments logs
        "Logs of containers" true {
        output_is_in_the_format_of_cri:
            "Each line of output is a line of the requested log file: time, stream, `F` and text, in order, from both \
             streams. The log outlives the container.";
        after_a_rotation_output_goes_to_the_new_file:
            "After the log is rotated and reopened, output goes to the new file.";
        a_rotation_loses_and_doubles_nothing:
            "A rotation loses no line and writes no line twice.";
        the_log_of_what_ended_is_not_reopened:
            "Reopening the log of an ended container is an error.";
    } } };
    (exec, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments exec
        "Commands in running containers" true {
        output_and_exit_code_come_back:
            "A command returns its exit code, whichever it is, its standard output and, separately, its standard \
             error.";
        a_command_needs_a_running_container:
            "A command in an ended or missing container is an error.";
        a_command_that_takes_too_long_is_a_timeout:
            "A command that exceeds its timeout returns `DeadlineExceeded`, and another command runs in the \
             container.";
        a_command_ends_with_its_container:
            "When the container is killed, the call of a command in it returns.";
    } } };
    (stats, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments stats
        "Resource usage of containers" true {
        a_running_container_is_measured:
            "A running container has usage. CPU time and the time of measurement never decrease.";
        the_list_has_all_that_runs_once:
            "`ListContainerStats` has each running container once.";
    } } };
    (events, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments events
        "Events of containers" true {
        start_end_and_removal_are_events:
            "Watchers get an event for the start, the end and the removal of a container.";
        an_end_by_itself_is_an_event:
            "Watchers get an event when a container ends by itself, and then see that it has ended.";
    } } };
    ($other:ident, [$($then:tt)+], $arguments:tt) => {
        ::core::compile_error!(::core::concat!(
            "a runtime on CRI cannot offer `", ::core::stringify!($other),
            "`; it may offer: signals, restart, logs, exec, stats, events"
        ));
    };
}
