#include "actors/segment/segment_queue.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "ipc/base/faults.hpp"
#include "ipc/base/limits.hpp"

namespace paceline {
namespace {

bool is_held(const WaitingPart& part, Micros now) {
    return part.part.hold != 0 && now < part.run_by;
}

bool is_prefill(const WaitingPart& part) {
    return part.part.kind == msg::BatchKind::Prefill;
}

}  // namespace

/// The parts that a run has taken so far, and what prevents others from joining.
struct SegmentQueue::Selection {
    std::size_t batch_rows;
    std::vector<WaitingPart> parts = {};
    std::size_t rows = 0;
    std::size_t verify_rows = 0;
    std::map<RequestId, std::size_t> rows_of = {};  // of the requests in it
    std::set<RequestId> blocked = {};               // an earlier part of theirs stays after
    std::set<KvSlot> claimed = {};                  // by parts that came earlier

    [[nodiscard]] bool has_room(const WaitingPart& part) const {
        const auto before = rows_of.find(part.part.request);
        if (before == rows_of.end() && rows_of.size() >= kBatchPartsMax) return false;
        // Merged parts are one walk: not deeper than what a verdict carries. Prefill is not merged.
        const bool merges = before != rows_of.end();
        if (merges && is_prefill(part)) return false;
        if (merges && before->second + part.rows.size() > kGammaMax + 1) return false;
        if (!is_prefill(part) && verify_rows + part.rows.size() > kVerifyRowsMax) return false;
        return rows + part.rows.size() <= batch_rows;
    }
    [[nodiscard]] bool overlaps(const WaitingPart& part) const {
        return std::any_of(part.rows.begin(), part.rows.end(),
                           [&](const msg::BatchRow& row) { return claimed.contains(row.slot); });
    }
    void claim(const WaitingPart& part) {
        for (const msg::BatchRow& row : part.rows) claimed.insert(row.slot);
    }
};

/// Which parts could run if there were no holds and no limits. Drops the stale ones.
Result<std::vector<bool>> SegmentQueue::readiness(const Rules& rules) {
    std::vector<bool> ready;
    std::set<RequestId> waits;
    for (auto part = parts_.begin(); part != parts_.end();) {
        if (waits.contains(part->part.request)) {
            ready.push_back(false);
            ++part;
            continue;
        }
        Readiness readiness = rules.readiness_of(*part);
        if (readiness == Readiness::Joins) {
            if (Status joined = rules.join(*part); !joined) return joined.error();
            part->joined = true;
            readiness = rules.readiness_of(*part);
        }
        if (readiness == Readiness::Stale) {
            drop(*part);
            part = parts_.erase(part);
            continue;
        }
        // Only when a prefill part has run it is known which slots of an earlier turn stay.
        if (readiness == Readiness::Waits || is_prefill(*part)) waits.insert(part->part.request);
        ready.push_back(readiness == Readiness::Ready);
        ++part;
    }
    return ready;
}

/// Takes back the readiness of held parts after which only held ones stand.
void SegmentQueue::keep_held(std::vector<bool>& ready, Micros now) const {
    std::set<RequestId> released;
    for (std::size_t i = parts_.size(); i-- > 0;) {
        if (!ready[i]) continue;
        if (is_held(parts_[i], now)) {
            ready[i] = released.contains(parts_[i].part.request);
        } else {
            released.insert(parts_[i].part.request);
        }
    }
}

Result<std::vector<WaitingPart>> SegmentQueue::take(const Rules& rules, Micros now) {
    Result<std::vector<bool>> found = readiness(rules);
    if (!found) return found.error();
    std::vector<bool>& ready = found.value();
    keep_held(ready, now);
    Selection chosen{.batch_rows = batch_rows_};
    std::deque<WaitingPart> left;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
        WaitingPart& part = parts_[i];
        const RequestId request = part.part.request;
        const bool goes = ready[i] && !chosen.blocked.contains(request) && chosen.has_room(part) &&
                          !chosen.overlaps(part);
        chosen.claim(part);
        if (!goes) {
            chosen.blocked.insert(request);
            left.push_back(std::move(part));
            continue;
        }
        chosen.rows += part.rows.size();
        if (!is_prefill(part)) chosen.verify_rows += part.rows.size();
        chosen.rows_of[request] += part.rows.size();
        // Nothing of this request may be merged after a prefill part.
        if (is_prefill(part)) chosen.blocked.insert(request);
        chosen.parts.push_back(std::move(part));
    }
    parts_ = std::move(left);
    return std::move(chosen.parts);
}

std::optional<Micros> SegmentQueue::due(Micros now) const {
    std::optional<Micros> due;
    for (const WaitingPart& part : parts_) {
        if (is_held(part, now) && (!due || part.run_by < *due)) due = part.run_by;
    }
    return due;
}

void SegmentQueue::drop(WaitingPart& part) {
    if (part.tensor && planted(PlantedBug::TensorLeakOnStale)) part.tensor->forget();
    part.tensor.reset();
}

void SegmentQueue::drop_if(const std::function<bool(const WaitingPart& part)>& which) {
    std::erase_if(parts_, [&](WaitingPart& part) {
        const bool drops = which(part);
        if (drops) drop(part);
        return drops;
    });
}

void SegmentQueue::forget_all() {
    for (WaitingPart& part : parts_) {
        if (part.tensor) part.tensor->forget();
    }
    parts_.clear();
}

}  // namespace paceline
