//! The pages, as HTML. The parts with an id change while one looks at them; [`live`](super::live) sends them again.

use k8s_openapi::api::core::v1::ContainerStatus;
use k8s_openapi::jiff::Timestamp;

use super::drawings::{clock_time, lasted, plot};
use super::history::{History, PLOTS, POINTS};
use super::html::{Html, segment};
use super::model::{Health, ShownPod};
use super::sources::ShownEvent;

/// A part of a page: its id, and what is in it.
pub(super) type Part = (&'static str, Html);

/// What surrounds each page. `live` is the path of its changes.
pub(super) fn page(title: &str, live: &str, heading: Html, body: Html) -> String {
    let mut html = Html::new();
    html.raw("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>")
        .text(title);
    html.raw("</title><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
    html.raw("<meta name=\"color-scheme\" content=\"light dark\">");
    html.raw(
        "<link rel=\"icon\" href=\"/console/icon.svg\"><link rel=\"stylesheet\" href=\"/console/style.css\">",
    );
    html.raw("<script src=\"/console/script.js\" defer></script></head><body data-live=\"")
        .text(live);
    html.raw("\"><a class=\"skip\" href=\"#main\">Skip to the content</a><header>")
        .part(heading);
    html.raw(
        "<p id=\"link\" role=\"status\" class=\"muted\"></p></header><main id=\"main\" tabindex=\"-1\">",
    );
    html.part(body).raw("</main></body></html>\n");
    html.into_string()
}

/// A page of parts.
pub(super) fn body(parts: Vec<Part>) -> Html {
    let mut html = Html::new();
    for (id, part) in parts {
        html.raw("<section id=\"")
            .raw(id)
            .raw("\">")
            .part(part)
            .raw("</section>");
    }
    html
}

pub(super) fn node_heading(node: &str) -> Html {
    let mut html = Html::new();
    html.raw("<h1>").text(node).raw("</h1>");
    html
}

/// The parts of the page of the node.
pub(super) fn node(pods: &[ShownPod], history: &History, events: &[ShownEvent], now: Timestamp) -> Vec<Part> {
    let mut plots = Html::new();
    plots.raw("<h2>Latency</h2><div class=\"plots\">");
    for (place, (_, title, about)) in PLOTS.iter().enumerate() {
        plots.part(plot(title, about, &history.points(place), POINTS));
    }
    plots.raw("</div>");
    let mut node_events = Html::new();
    node_events
        .raw("<h2>Events of the node</h2>")
        .part(table_of_events(events, now));
    vec![
        ("summary", summary(pods)),
        ("pods", table_of_pods(pods, now)),
        ("plots", plots),
        ("events", node_events),
    ]
}

fn summary(pods: &[ShownPod]) -> Html {
    let mut html = Html::new();
    html.raw("<ul class=\"counts\"><li><b>")
        .text(pods.len())
        .raw(if pods.len() == 1 {
            "</b> pod</li>"
        } else {
            "</b> pods</li>"
        });
    for (health, word) in [
        (Health::Failing, "failing"),
        (Health::Waiting, "waiting"),
        (Health::Running, "running"),
        (Health::Done, "done"),
    ] {
        let count = pods.iter().filter(|pod| pod.word().1 == health).count();
        html.raw("<li><span class=\"dot ")
            .raw(health.class())
            .raw("\"></span><b>")
            .text(count);
        html.raw("</b> ").raw(word).raw("</li>");
    }
    html.raw("</ul>");
    html
}

fn table_of_pods(pods: &[ShownPod], now: Timestamp) -> Html {
    let mut html = Html::new();
    html.raw("<h2>Pods</h2>");
    if pods.is_empty() {
        html.raw("<p class=\"muted\">The node has no pods.</p>");
        return html;
    }
    html.raw("<table class=\"pods\"><thead><tr><th scope=\"col\">Pod<th scope=\"col\">Namespace<th scope=\"col\">Status");
    html.raw("<th scope=\"col\" class=\"number\">Ready<th scope=\"col\" class=\"number\">Restarts");
    html.raw("<th scope=\"col\" class=\"number\">Age</tr></thead><tbody>");
    let mut sorted: Vec<_> = pods.iter().map(|pod| (pod.word(), pod)).collect();
    sorted.sort_by_cached_key(|((_, health), pod)| (*health, pod.namespace(), pod.name()));
    for ((word, health), pod) in sorted {
        let (namespace, name, (ready, all)) = (pod.namespace(), pod.name(), pod.ready());
        html.raw("<tr><th scope=\"row\"><a id=\"pod-")
            .text(pod.uid())
            .raw("\" href=\"/console/pods/");
        html.text(segment(&namespace))
            .raw("/")
            .text(segment(&name))
            .raw("\">")
            .text(&name);
        html.raw("</a><td data-label=\"Namespace\">")
            .text(&namespace)
            .raw("<td data-label=\"Status\">");
        html.part(badge(&word, health));
        html.raw("<td data-label=\"Ready\" class=\"number\">")
            .text(ready)
            .raw("/")
            .text(all);
        html.raw("<td data-label=\"Restarts\" class=\"number\">")
            .text(pod.restarts());
        html.raw("<td data-label=\"Age\" class=\"number\">")
            .text(lasted(pod.age(now)))
            .raw("</tr>");
    }
    html.raw("</tbody></table>");
    html
}

fn badge(word: &str, health: Health) -> Html {
    let mut html = Html::new();
    html.raw("<span class=\"badge ")
        .raw(health.class())
        .raw("\">")
        .text(word)
        .raw("</span>");
    html
}

pub(super) fn pod_heading(node: &str, namespace: &str, name: &str) -> Html {
    let mut html = Html::new();
    html.raw("<nav aria-label=\"Path\"><a href=\"/console/\">")
        .text(node)
        .raw("</a> / ")
        .text(namespace);
    html.raw("</nav><h1>").text(name).raw("</h1>");
    html
}

/// The parts of the page of a pod.
pub(super) fn pod(
    pod: &ShownPod,
    explained: &[String],
    history: &History,
    events: &[ShownEvent],
    now: Timestamp,
) -> Vec<Part> {
    let mut state = Html::new();
    let (word, health) = pod.word();
    state
        .raw("<p>")
        .part(badge(&word, health))
        .raw(" created ")
        .text(lasted(pod.age(now)))
        .raw(" ago</p>");
    if let Some(message) = &pod.status.message {
        state.raw("<p>").text(message).raw("</p>");
    }
    if !explained.is_empty() {
        let title = match health {
            Health::Failing | Health::Waiting => "<h2>What it waits for</h2>",
            Health::Running | Health::Done => "<h2>What the agent does with it</h2>",
        };
        state.raw(title).raw("<ul class=\"explain\">");
        for line in explained {
            state.raw("<li>").text(line);
        }
        state.raw("</ul>");
    }
    let mut timeline = Html::new();
    timeline
        .raw("<h2>Timeline</h2><div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"Timeline\">");
    timeline
        .part(pod.timeline(history, events, now).draw())
        .raw("</div>");
    timeline.raw("<ul class=\"legend\"><li><span class=\"key waits\"></span>waits<li><span class=\"key runs\"></span>runs");
    timeline
        .raw("<li><span class=\"key done\"></span>completed<li><span class=\"key failed\"></span>✗ failed");
    timeline.raw("<li>↓ image pulled<li>+ created<li>✓ ready</ul>");
    let mut containers = Html::new();
    containers.raw("<h2>Containers</h2><table class=\"containers\"><thead><tr><th scope=\"col\">Container");
    containers
        .raw("<th scope=\"col\">State<th scope=\"col\">Ready<th scope=\"col\" class=\"number\">Restarts");
    containers.raw("<th scope=\"col\">Last end<th scope=\"col\">Log</tr></thead><tbody>");
    for container in pod.containers() {
        containers.part(row_of_container(pod, container, now));
    }
    containers.raw("</tbody></table>");
    let mut shown_events = Html::new();
    shown_events
        .raw("<h2>Events</h2>")
        .part(table_of_events(events, now));
    vec![
        ("state", state),
        ("timeline", timeline),
        ("containers", containers),
        ("events", shown_events),
    ]
}

fn row_of_container(pod: &ShownPod, container: &ContainerStatus, now: Timestamp) -> Html {
    let mut html = Html::new();
    html.raw("<tr><th scope=\"row\">")
        .text(&container.name)
        .raw("<div class=\"muted\">")
        .part(image(&container.image));
    html.raw("</div><td data-label=\"State\">")
        .part(state(container, now))
        .raw("<td data-label=\"Ready\">");
    html.raw(if container.ready { "yes" } else { "no" })
        .raw("<td data-label=\"Restarts\" class=\"number\">");
    html.text(container.restart_count)
        .raw("<td data-label=\"Last end\">");
    match container
        .last_state
        .as_ref()
        .and_then(|state| state.terminated.as_ref())
    {
        None => html.raw("—"),
        Some(ended) => {
            let reason = ended.reason.as_deref().unwrap_or("ended");
            html.text(format_args!("{reason}, exit code {}", ended.exit_code));
            if let Some(at) = &ended.finished_at {
                html.text(format_args!(", {} ago", lasted(now.duration_since(at.0))));
            }
            &mut html
        }
    };
    html.raw("<td data-label=\"Log\">");
    for (label, query) in [("now", ""), ("previous", "?previous=true")] {
        if query.is_empty() || container.restart_count > 0 {
            html.raw("<a id=\"log-")
                .raw(label)
                .raw("-")
                .text(&container.name)
                .raw("\" href=\"/console/logs/");
            html.text(segment(&pod.namespace()))
                .raw("/")
                .text(segment(&pod.name()))
                .raw("/");
            html.text(segment(&container.name))
                .raw(query)
                .raw("\" aria-label=\"Log of ")
                .text(&container.name);
            html.raw(", ").raw(label).raw("\">").raw(label).raw("</a> ");
        }
    }
    html.raw("</tr>");
    html
}

/// The name of an image, which may break after each slash.
fn image(name: &str) -> Html {
    let mut html = Html::new();
    for part in name.split_inclusive('/') {
        html.text(part);
        if part.ends_with('/') {
            html.raw("<wbr>");
        }
    }
    html
}

fn state(container: &ContainerStatus, now: Timestamp) -> Html {
    let mut html = Html::new();
    let Some(state) = &container.state else {
        html.raw("unknown");
        return html;
    };
    if let Some(running) = &state.running {
        html.raw("running");
        if let Some(since) = &running.started_at {
            html.text(format_args!(" for {}", lasted(now.duration_since(since.0))));
        }
    } else if let Some(ended) = &state.terminated {
        let reason = ended.reason.as_deref().unwrap_or("ended");
        html.text(format_args!("{reason}, exit code {}", ended.exit_code));
        html.part(message(ended.message.as_deref()));
    } else if let Some(waiting) = &state.waiting {
        html.text(waiting.reason.as_deref().unwrap_or("waiting"))
            .part(message(waiting.message.as_deref()));
    }
    html
}

fn message(message: Option<&str>) -> Html {
    let mut html = Html::new();
    if let Some(message) = message {
        html.raw("<div class=\"muted\">").text(message).raw("</div>");
    }
    html
}

fn table_of_events(events: &[ShownEvent], now: Timestamp) -> Html {
    let mut html = Html::new();
    if events.is_empty() {
        html.raw("<p class=\"muted\">No events.</p>");
        return html;
    }
    html.raw("<table class=\"events\"><thead><tr><th scope=\"col\">Reason<th scope=\"col\">Message");
    html.raw(
        "<th scope=\"col\" class=\"number\">Count<th scope=\"col\" class=\"number\">Last (UTC)</tr></thead><tbody>",
    );
    for event in events.iter().rev() {
        html.raw("<tr><th scope=\"row\">");
        if event.warning {
            html.raw("<span class=\"badge failing\">Warning</span> ");
        }
        html.text(&event.reason)
            .raw("<td data-label=\"Message\">")
            .text(&event.message);
        html.raw("<td data-label=\"Count\" class=\"number\">")
            .text(event.count);
        html.raw("<td data-label=\"Last\" class=\"number\"><time title=\"")
            .text(event.at)
            .raw("\">");
        html.text(clock_time(event.at))
            .raw("</time> <span class=\"muted\">");
        html.text(lasted(now.duration_since(event.at)))
            .raw(" ago</span></tr>");
    }
    html.raw("</tbody></table>");
    html
}

pub(super) fn log_heading(node: &str, namespace: &str, name: &str, container: &str) -> Html {
    let mut html = Html::new();
    html.raw("<nav aria-label=\"Path\"><a href=\"/console/\">")
        .text(node)
        .raw("</a> / ")
        .text(namespace);
    html.raw(" / <a href=\"/console/pods/")
        .text(segment(namespace))
        .raw("/")
        .text(segment(name))
        .raw("\">");
    html.text(name)
        .raw("</a></nav><h1>Log of ")
        .text(container)
        .raw("</h1>");
    html
}

/// The page of a log. Its lines come later.
pub(super) fn log(lines: &str) -> Html {
    let mut html = Html::new();
    html.raw("<p><label><input type=\"checkbox\" id=\"follow\" checked> Follow the end</label></p>");
    html.raw("<pre id=\"log\" tabindex=\"0\" role=\"log\" aria-live=\"off\" aria-label=\"Log\">")
        .text(lines);
    html.raw("</pre>");
    html
}

pub(super) fn missing(text: &str) -> Html {
    let mut html = Html::new();
    html.raw("<p>")
        .text(text)
        .raw("</p><p><a href=\"/console/\">All pods</a></p>");
    html
}
