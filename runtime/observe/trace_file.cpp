#include "runtime/observe/trace_file.hpp"

#include <algorithm>
#include <cstddef>
#include <fmt/core.h>
#include <limits>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "ipc/wire/messages.hpp"
#include "runtime/observe/trace_rows.hpp"

namespace paceline {
namespace {

/// Writes ASCII only, so that the file is valid UTF-8 for any name.
std::string quoted_text(std::string_view text) {
    std::string json = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') json += '\\';
        json += c < ' ' || c > '~' ? '?' : c;
    }
    return json + "\"";
}

/// The members of one JSON object.
class Members {
public:
    Members& add(const char* name, std::int64_t value) {
        return add_raw(name, std::to_string(value));
    }
    Members& add(const char* name, std::string_view value) {
        return add_raw(name, quoted_text(value));
    }
    Members& add(const char* name, const Members& value) { return add_raw(name, value.object()); }
    [[nodiscard]] std::string object() const { return "{" + text_ + "}"; }

private:
    Members& add_raw(const char* name, const std::string& json) {
        if (!text_.empty()) text_ += ',';
        text_ += quoted_text(name) + ":" + json;
        return *this;
    }
    std::string text_;
};

using Row = TraceRow;

/// The picture under construction.
class Picture {
public:
    explicit Picture(std::span<const ProcessTrace> processes);
    [[nodiscard]] std::string text();

private:
    /// A channel as both of its ends know it, for one kind of frame.
    using FrameKey = std::tuple<StageId, Epoch, StageId, Epoch, std::uint32_t>;
    struct End {
        const Row* row;
        std::int64_t time;
    };
    struct Ends {
        std::vector<End> sent;
        std::vector<End> received;
    };

    void add_metadata();
    void add_row(const Row& row);
    void add_slice(const Row& row, const TraceSlice& slice);
    void add_instant(const Row& row, const TraceEvent& event);
    void add_frames();
    void add_arrow(const FrameKey& frame, const Ends& ends);
    void add_in_flight();
    void add(std::int64_t time, const Members& members, std::int64_t order = 0) {
        lines_.push_back({time, order, members.object()});
    }

    [[nodiscard]] Members begin(const char* phase, std::string_view name, const Row& row) const;
    [[nodiscard]] std::string stage_name(StageId stage) const;
    [[nodiscard]] std::map<FrameKey, Ends> ends_by_frame() const;
    [[nodiscard]] Epoch epoch_of_peer(const TraceEvent& event) const;

    std::vector<Row> rows_;
    std::int64_t origin_ = 0;
    std::int64_t frames_ = 0;
    /// Changes of how many frames are on their way, by process and name of the channel.
    std::map<std::pair<std::int64_t, std::string>, std::vector<std::pair<std::int64_t, int>>>
        in_flight_;
    std::vector<std::string> metadata_;
    struct Line {
        std::int64_t time;
        std::int64_t order;  // among those of one time
        std::string json;
    };
    std::vector<Line> lines_;
};

Picture::Picture(std::span<const ProcessTrace> processes) : rows_{trace_rows(processes)} {
    if (rows_.empty()) return;
    origin_ = std::numeric_limits<std::int64_t>::max();
    for (const Row& row : rows_) {
        if (!row.events.empty()) origin_ = std::min(origin_, row.events.front().time_us);
    }
}

std::string Picture::stage_name(StageId stage) const {
    for (const Row& row : rows_) {
        if (row.process->stage == stage) return row.process->name;
    }
    return fmt::format("stage {}", stage.value);  // an actor inside of another's process
}

Members Picture::begin(const char* phase, std::string_view name, const Row& row) const {
    Members members;
    members.add("ph", phase).add("name", name).add("pid", row.pid).add("tid", row.tid);
    return members;
}

void Picture::add_metadata() {
    for (const Row& row : rows_) {
        const std::string epoch = fmt::format("epoch {}", row.process->epoch.value);
        const auto say = [&](const char* what, const char* key, auto value) {
            metadata_.push_back(
                begin("M", what, row).add("args", Members{}.add(key, value)).object());
        };
        say("process_name", "name", std::string_view{row.process->name});
        say("process_sort_index", "sort_index", row.pid);
        say("thread_name", "name", std::string_view{epoch});
        say("thread_sort_index", "sort_index", row.tid);
    }
}

// ---- one row ----

void Picture::add_slice(const Row& row, const TraceSlice& slice) {
    const TraceEvent& event = *slice.event;
    const bool is_job = event.kind == TraceKind::Job;
    std::string name = is_job ? job_name(event.label) : name_of(event.kind);
    if (is_job || event.kind == TraceKind::Batch || event.kind == TraceKind::Verdict ||
        event.kind == TraceKind::Commit) {
        name += fmt::format(" {}", event.id);
    }
    Members args;
    if (event.kind != TraceKind::Wait) {
        args.add("request", static_cast<std::int64_t>(event.request.value));
    }
    if (is_job) {
        args.add("batch", event.id).add("rows", event.count);
        args.add("layers", event.detail).add("context", event.position);
        args.add("heads", event.heads);
    } else if (event.kind == TraceKind::Proposal) {
        args.add("attempt", event.attempt.value).add("root", event.position);
        args.add("tokens", event.count);
    } else if (is_mark(event.kind)) {
        args.add("attempt", event.attempt.value).add("batch", event.id);
        args.add("position", event.position);
        args.add(event.kind == TraceKind::Batch ? "rows" : "tokens", event.count);
    }
    const std::int64_t at = slice.start - origin_;
    const std::int64_t micros = slice.end - slice.start;
    Members members = begin("X", name, row);
    members.add("cat", name_of(event.kind)).add("ts", at).add("dur", micros).add("args", args);
    add(at, members, slice.order);
    for (const TraceArrow& point : slice.arrows) {
        const char phase[] = {point.phase, '\0'};
        Members arrow = begin(phase, point.name, row);
        arrow.add("cat", point.name).add("id", point.id).add("ts", at);
        // To the slice it lies in, not to the next one.
        if (point.phase != 's') arrow.add("bp", "e");
        add(at, arrow, slice.order);
    }
}

const char* frame_name(std::uint32_t kind) {
    switch (static_cast<msg::Kind>(kind)) {
        case msg::Kind::Proposal:
            return "proposal";
        case msg::Kind::Batch:
            return "batch";
        case msg::Kind::TensorNote:
            return "tensor note";
        case msg::Kind::Verdict:
            return "verdict";
        case msg::Kind::Stop:
            return "stop";
        case msg::Kind::Draw:
            return "draw";
        case msg::Kind::Price:
            return "price";
        case msg::Kind::Prefix:
            return "prefix";
        case msg::Kind::Scores:
            return "scores";
        case msg::Kind::OwnTokens:
            return "own-tokens";
    }
    return "frame";
}

void Picture::add_instant(const Row& row, const TraceEvent& event) {
    std::string name = name_of(event.kind);
    Members args;
    switch (event.kind) {
        case TraceKind::Send:
        case TraceKind::Receive:
        case TraceKind::Full:
            name += std::string{" "} + frame_name(event.detail);
            args.add("peer", stage_name(event.peer));
            break;
        case TraceKind::PeerLost:
        case TraceKind::PeerJoined:
            name += " " + stage_name(event.peer);
            break;
        default:
            args.add("request", static_cast<std::int64_t>(event.request.value));
            args.add("attempt", event.attempt.value).add("id", event.id);
            args.add("position", event.position).add("count", event.count);
            args.add("detail", event.detail);
            break;
    }
    const std::int64_t at = event.time_us - origin_;
    add(at, begin("i", name, row)
                .add("cat", name_of(event.kind))
                .add("s", "t")
                .add("ts", at)
                .add("args", args));
}

void Picture::add_row(const Row& row) {
    for (const TraceSlice& slice : row.slices) add_slice(row, slice);
    for (const TraceEvent& event : row.events) {
        if (!is_span(event.kind) && !is_mark(event.kind)) add_instant(row, event);
    }
}

// ---- frames ----

/// 0 if that cannot be known: it was not recorded, and there were several incarnations.
Epoch Picture::epoch_of_peer(const TraceEvent& event) const {
    if (event.peer_epoch != Epoch{}) return event.peer_epoch;
    Epoch found{};
    for (const Row& row : rows_) {
        if (row.process->stage != event.peer) continue;
        if (found != Epoch{}) return Epoch{};
        found = row.process->epoch;
    }
    return found;
}

std::map<Picture::FrameKey, Picture::Ends> Picture::ends_by_frame() const {
    std::map<FrameKey, Ends> frames;
    for (const Row& row : rows_) {
        const ProcessTrace& process = *row.process;
        if (process.recorded > process.events.size()) continue;  // the n-th is not the n-th
        for (const TraceEvent& event : row.events) {
            const StageId self = event.self == kUnknownActor ? process.stage : event.self;
            const Epoch peer_epoch = epoch_of_peer(event);
            if (peer_epoch == Epoch{}) continue;
            if (event.kind == TraceKind::Send) {
                frames[{self, process.epoch, event.peer, peer_epoch, event.detail}].sent.push_back(
                    {&row, event.time_us});
            } else if (event.kind == TraceKind::Receive) {
                frames[{event.peer, peer_epoch, self, process.epoch, event.detail}]
                    .received.push_back({&row, event.time_us});
            }
        }
    }
    return frames;
}

/// A channel keeps the order, so the n-th frame sent is the n-th one received.
void Picture::add_arrow(const FrameKey& frame, const Ends& ends) {
    const std::string way =
        stage_name(std::get<0>(frame)) + " -> " + stage_name(std::get<2>(frame));
    const std::string name = std::string{frame_name(std::get<4>(frame))} + " " + way;
    for (std::size_t n = 0; n < std::min(ends.sent.size(), ends.received.size()); ++n) {
        const Row& row = *ends.sent[n].row;
        const std::int64_t arrived = ends.received[n].time - origin_;
        // The sender records Send after publishing, so the receiver may have an earlier time.
        const std::int64_t left = std::min(ends.sent[n].time - origin_, arrived);
        ++frames_;
        const auto half = [&](const char* phase, std::int64_t at) {
            add(at, begin(phase, name, row).add("cat", "frame").add("id", frames_).add("ts", at));
        };
        half("b", left);
        half("e", arrived);
        auto& changes = in_flight_[{row.pid, way}];
        changes.emplace_back(left, 1);
        changes.emplace_back(arrived, -1);
    }
}

void Picture::add_in_flight() {
    for (auto& [key, changes] : in_flight_) {
        std::sort(changes.begin(), changes.end());
        std::int64_t frames = 0;
        for (std::size_t i = 0; i < changes.size(); ++i) {
            const std::int64_t at = changes[i].first;
            frames += changes[i].second;
            if (i + 1 < changes.size() && changes[i + 1].first == at) continue;
            add(at, Members{}
                        .add("ph", "C")
                        .add("name", "in flight " + key.second)
                        .add("pid", key.first)
                        .add("ts", at)
                        .add("args", Members{}.add("frames", frames)));
        }
    }
}

void Picture::add_frames() {
    for (const auto& [frame, ends] : ends_by_frame()) add_arrow(frame, ends);
    add_in_flight();
}

std::string Picture::text() {
    add_metadata();
    for (const Row& row : rows_) add_row(row);
    add_frames();
    // Stable: an arrow's step stays after its slice. The steps of one time stay in their order.
    std::stable_sort(lines_.begin(), lines_.end(), [](const Line& a, const Line& b) {
        return std::pair{a.time, a.order} < std::pair{b.time, b.order};
    });
    std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
    const char* separator = "\n";
    const auto append = [&](const std::string& line) {
        text += separator + line;
        separator = ",\n";
    };
    for (const std::string& line : metadata_) append(line);
    for (const Line& line : lines_) append(line.json);
    return text + "\n]}\n";
}

}  // namespace

std::string trace_file_text(std::span<const ProcessTrace> processes) {
    return Picture{processes}.text();
}

}  // namespace paceline
