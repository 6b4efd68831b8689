//! The drawings, as inline SVG: the timeline of a pod, and the plots.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::history::Run;
use super::html::Html;

/// The width of a drawing, in its own units; the page scales it.
const WIDTH: f64 = 720.0;
/// Where the lanes of a timeline begin and end.
const LANE_START: f64 = 8.0;
const LANE_END: f64 = WIDTH - 8.0;
const LANE_HEIGHT: f64 = 62.0;
/// Where the bar of a lane is.
const BAR: f64 = 32.0;

/// A container's life, as the timeline shows it.
#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) name: String,
    pub(super) created: Vec<Timestamp>,
    pub(super) pulled: Vec<Timestamp>,
    pub(super) runs: Vec<Run>,
    pub(super) restarts: i32,
}

/// The timeline of a pod.
#[derive(Debug)]
pub(super) struct Timeline {
    pub(super) from: Timestamp,
    pub(super) until: Timestamp,
    pub(super) lanes: Vec<Lane>,
}

impl Timeline {
    fn at(&self, time: Timestamp) -> f64 {
        let whole = self.until.duration_since(self.from).as_secs_f64().max(1.0);
        let part = time.duration_since(self.from).as_secs_f64() / whole;
        LANE_START + part.clamp(0.0, 1.0) * (LANE_END - LANE_START)
    }

    /// One lane for each container, with its runs as bars and the other steps as marks.
    pub(super) fn draw(&self) -> Html {
        let height = self.lanes.len() as f64 * LANE_HEIGHT + 24.0;
        let mut svg = Html::new();
        svg.raw("<svg class=\"timeline\" role=\"img\" aria-label=\"")
            .text(self.label());
        svg.raw("\" viewBox=\"0 0 720 ").number(height).raw("\">");
        for (place, lane) in self.lanes.iter().enumerate() {
            self.draw_lane(&mut svg, lane, place as f64 * LANE_HEIGHT);
        }
        self.draw_axis(&mut svg, height - 24.0);
        svg.raw("</svg>");
        svg
    }

    fn draw_lane(&self, svg: &mut Html, lane: &Lane, top: f64) {
        let bar = top + BAR;
        svg.raw("<text class=\"name\" x=\"8.0\" y=\"")
            .number(top + 15.0)
            .raw("\">")
            .text(&lane.name);
        svg.raw("</text><rect class=\"waits\" x=\"")
            .number(LANE_START)
            .raw("\" y=\"")
            .number(bar);
        svg.raw("\" width=\"")
            .number(LANE_END - LANE_START)
            .raw("\" height=\"12\"/>");
        for run in &lane.runs {
            let end = run.ended.map_or(self.until, |(at, _)| at);
            let (x, until) = (self.at(run.started), self.at(end));
            let (class, word) = match run.ended {
                None => ("runs", "running".to_owned()),
                Some((_, 0)) => ("done", "completed".to_owned()),
                Some((_, code)) => ("failed", format!("exit code {code}")),
            };
            svg.raw("<rect class=\"")
                .text(class)
                .raw("\" x=\"")
                .number(x)
                .raw("\" y=\"")
                .number(bar);
            svg.raw("\" width=\"")
                .number((until - x).max(2.0))
                .raw("\" height=\"12\"><title>");
            let lasted = lasted(end.duration_since(run.started));
            svg.text(format_args!(
                "started {}, {word}, {lasted}",
                clock_time(run.started)
            ))
            .raw("</title></rect>");
            // Not by its color alone.
            if class == "failed" {
                svg.raw("<text class=\"end\" x=\"")
                    .number(until.clamp(6.0, WIDTH - 6.0))
                    .raw("\" y=\"")
                    .number(bar + 25.0)
                    .raw("\">✗</text>");
            }
            if let Some(ready) = run.ready {
                mark(
                    svg,
                    self.at(ready),
                    bar,
                    -5.0,
                    "✓",
                    &format!("ready {}", clock_time(ready)),
                );
            }
        }
        for created in &lane.created {
            mark(
                svg,
                self.at(*created),
                bar,
                25.0,
                "+",
                &format!("created {}", clock_time(*created)),
            );
        }
        for pulled in &lane.pulled {
            mark(
                svg,
                self.at(*pulled),
                bar,
                -5.0,
                "↓",
                &format!("image pulled {}", clock_time(*pulled)),
            );
        }
    }

    fn draw_axis(&self, svg: &mut Html, top: f64) {
        svg.raw("<path class=\"axis\" d=\"M8 ")
            .number(top + 4.0)
            .raw("H712\"/>");
        for (x, anchor, time) in [(LANE_START, "start", self.from), (LANE_END, "end", self.until)] {
            svg.raw("<text class=\"tick\" x=\"")
                .number(x)
                .raw("\" y=\"")
                .number(top + 18.0);
            svg.raw("\" text-anchor=\"")
                .text(anchor)
                .raw("\">")
                .text(clock_time(time))
                .raw(" UTC</text>");
        }
        let whole = lasted(self.until.duration_since(self.from));
        svg.raw("<text class=\"tick\" x=\"360\" text-anchor=\"middle\" y=\"")
            .number(top + 18.0);
        svg.raw("\">").text(whole).raw("</text>");
    }

    /// What the drawing shows, for those who do not see it.
    fn label(&self) -> String {
        let lanes = self.lanes.iter().map(|lane| {
            let last = match lane.runs.last() {
                None => "not started".to_owned(),
                Some(Run {
                    ended: None, started, ..
                }) => format!("running since {}", clock_time(*started)),
                Some(Run {
                    ended: Some((at, code)),
                    ..
                }) => {
                    format!("ended at {} with exit code {code}", clock_time(*at))
                }
            };
            format!("{}: {last}, {} restarts", lane.name, lane.restarts)
        });
        lanes.collect::<Vec<_>>().join("; ")
    }
}

/// A line across the bar, with a sign above or below it.
fn mark(svg: &mut Html, x: f64, bar: f64, sign_at: f64, sign: &'static str, title: &str) {
    // Marks of one moment stay readable side by side.
    let beside = match sign {
        "↓" => -7.0,
        "✓" => 7.0,
        _ => 0.0,
    };
    svg.raw("<g class=\"mark\"><title>")
        .text(title)
        .raw("</title><path d=\"M")
        .number(x)
        .raw(" ");
    svg.number(bar - 3.0)
        .raw("v18\"/><text x=\"")
        .number((x + beside).clamp(6.0, WIDTH - 6.0))
        .raw("\" y=\"");
    svg.number(bar + sign_at).raw("\">").raw(sign).raw("</text></g>");
}

/// A plot of durations over time, in milliseconds.
pub(super) fn plot(
    title: &'static str,
    about: &'static str,
    points: &[Option<f64>],
    capacity: usize,
) -> Html {
    const TOP: f64 = 2.0;
    const BOTTOM: f64 = 82.0;
    let known = points.iter().flatten().copied();
    let (most, last) = (known.clone().fold(0.0, f64::max), known.clone().last());
    let scale = round_up(most);
    let (now, peak) = (last.map_or("—".to_owned(), milliseconds), milliseconds(most));
    let mut html = Html::new();
    html.raw("<figure><figcaption><b>")
        .raw(title)
        .raw("</b> <span class=\"now\">")
        .text(&now);
    html.raw("</span><div class=\"about\"><span>")
        .raw(about)
        .raw("</span><span>")
        .text(milliseconds(scale));
    html.raw("</span></div></figcaption>");
    html.raw("<svg class=\"plot\" role=\"img\" aria-label=\"")
        .raw(title)
        .raw(": now ")
        .text(&now);
    html.raw(", at most ")
        .text(&peak)
        .raw("\" viewBox=\"0 0 320 84\" preserveAspectRatio=\"none\">");
    html.raw("<path class=\"axis\" d=\"M0 82H320M0 2H320\"/>");
    let step = 320.0 / (capacity.max(2) - 1) as f64;
    let start = 320.0 - step * points.len().saturating_sub(1) as f64;
    let mut path = Html::new();
    let mut is_drawing = false;
    for (place, point) in points.iter().enumerate() {
        // A period in which nothing was measured is skipped.
        let Some(point) = point else { continue };
        path.raw(if is_drawing { "L" } else { "M" })
            .number(start + place as f64 * step)
            .raw(" ");
        path.number(BOTTOM - point / scale * (BOTTOM - TOP));
        is_drawing = true;
    }
    html.raw("<path class=\"line\" d=\"").part(path).raw("\"/></svg>");
    html.raw("</figure>");
    html
}

/// The next round number: 1, 2 or 5 times a power of ten.
fn round_up(seconds: f64) -> f64 {
    let mut scale = 0.001;
    loop {
        for step in [1.0, 2.0, 5.0] {
            if seconds <= scale * step || scale > 1e6 {
                return scale * step;
            }
        }
        scale *= 10.0;
    }
}

fn milliseconds(seconds: f64) -> String {
    match seconds * 1000.0 {
        ms if ms >= 10_000.0 => format!("{seconds:.0} s"),
        ms if ms >= 1000.0 => format!("{seconds:.1} s"),
        ms if ms >= 10.0 => format!("{ms:.0} ms"),
        ms => format!("{ms:.1} ms"),
    }
}

/// The time of day in UTC.
pub(super) fn clock_time(time: Timestamp) -> String {
    time.strftime("%H:%M:%S").to_string()
}

/// A duration as `kubectl` shows an age.
pub(super) fn lasted(duration: SignedDuration) -> String {
    match duration.as_secs().max(0) {
        seconds @ ..120 => format!("{seconds}s"),
        seconds @ 120..7_200 => format!("{}m", seconds / 60),
        seconds @ 7_200..172_800 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_round() {
        for (most, scale) in [
            (0.0, 0.001),
            (0.001, 0.001),
            (0.0015, 0.002),
            (0.3, 0.5),
            (7.0, 10.0),
        ] {
            assert!((round_up(most) - scale).abs() < 1e-9, "{most}");
        }
        assert!(round_up(f64::NAN) > 0.0);
        assert!(round_up(f64::INFINITY) > 0.0);
    }

    #[test]
    fn a_plot_skips_what_was_not_measured() {
        let html = plot("PLEG", "about", &[None, Some(0.001), None, Some(0.0005)], 4).into_string();
        assert!(html.contains("d=\"M106.7 2.0L320.0 42.0\""), "{html}");
        assert!(html.contains("now 0.5 ms, at most 1.0 ms"), "{html}");
        assert!(plot("PLEG", "about", &[], 4).into_string().contains("—"));
    }
}
