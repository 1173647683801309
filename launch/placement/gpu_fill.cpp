#include "launch/placement/gpu_fill.hpp"

#include <algorithm>
#include <limits>

#include "ipc/base/check.hpp"

namespace paceline {
namespace {

/// GPUs while they are filled.
class Filling {
public:
    Filling(const std::vector<FillUnit>& units, const std::vector<FillGpu>& gpus)
        : units_{units}, gpus_{gpus}, held_(gpus.size(), 0) {
        fill_.gpu_of.assign(units.size(), -1);
    }

    void put(std::size_t unit, std::size_t gpu) {
        put_bytes(unit, gpu, units_[unit].bytes);
        fill_.gpu_of[unit] = gpus_[gpu].index;
    }

    void put_named() {
        for (std::size_t unit = 0; unit < units_.size(); ++unit) {
            const FillUnit& one = units_[unit];
            for (std::size_t part = 0; part < one.named.size(); ++part) {
                for (std::size_t gpu = 0; gpu < gpus_.size(); ++gpu) {
                    if (gpus_[gpu].index != one.named[part].gpu) continue;
                    put_bytes(unit, gpu, one.named[part].bytes + (part == 0 ? one.bytes : 0));
                }
            }
            if (!one.named.empty()) fill_.gpu_of[unit] = one.named.front().gpu;
        }
    }

    /// The target's free units, in order, over exactly `count` GPUs.
    void put_target(std::size_t count);

    /// An unused GPU if there is one, else the one that holds least of those where it fits, else
    /// the one with the most room.
    void put_draft(std::size_t unit) {
        std::size_t best = 0;
        const auto left = [&](std::size_t gpu) {
            return gpus_[gpu].room - std::min(gpus_[gpu].room, held_[gpu]);
        };
        const auto fits = [&](std::size_t gpu) { return units_[unit].bytes <= left(gpu); };
        for (std::size_t gpu = 1; gpu < gpus_.size(); ++gpu) {
            if (fits(gpu) != fits(best)) {
                if (fits(gpu)) best = gpu;
            } else if (fits(gpu) ? held_[gpu] < held_[best] : left(gpu) > left(best)) {
                best = gpu;
            }
        }
        put(unit, best);
    }

    [[nodiscard]] const Fill& fill() const { return fill_; }

private:
    void put_bytes(std::size_t unit, std::size_t gpu, std::uint64_t bytes) {
        const std::uint64_t left = gpus_[gpu].room - std::min(gpus_[gpu].room, held_[gpu]);
        if (bytes > left && !fill_.failure)
            fill_.failure = FillFailure{unit, bytes, gpus_[gpu].index, left, bytes - left};
        held_[gpu] += bytes;
    }

    /// How full GPU `gpu` is with units [first, last) of `free` beside what it holds: 1 is all of
    /// it.
    [[nodiscard]] double load(const std::vector<std::size_t>& free,
                              std::size_t first,
                              std::size_t last,
                              std::size_t gpu) const {
        std::uint64_t bytes = held_[gpu];
        for (std::size_t i = first; i < last; ++i) bytes += units_[free[i]].bytes;
        return static_cast<double>(bytes) /
               static_cast<double>(std::max<std::uint64_t>(1, gpus_[gpu].room));
    }

    const std::vector<FillUnit>& units_;
    const std::vector<FillGpu>& gpus_;
    std::vector<std::uint64_t> held_;
    Fill fill_;
};

std::vector<std::size_t> free_units(const std::vector<FillUnit>& units, bool target) {
    std::vector<std::size_t> free;
    for (std::size_t i = 0; i < units.size(); ++i) {
        if (units[i].named.empty() && units[i].target == target) free.push_back(i);
    }
    return free;
}

void Filling::put_target(std::size_t count) {
    const std::vector<std::size_t> free = free_units(units_, true);
    if (free.empty()) return;
    // best[k][n]: the first n units over k of the GPUs so far, the fullest of them as empty as can
    // be.
    struct State {
        double fullest = std::numeric_limits<double>::infinity();
        std::vector<std::size_t> gpu_of = {};
    };
    std::vector best(count + 1, std::vector<State>(free.size() + 1));
    best[0][0].fullest = 0;
    for (std::size_t gpu = 0; gpu < gpus_.size(); ++gpu) {
        for (std::size_t k = count; k-- > 0;) {
            for (std::size_t first = 0; first < free.size(); ++first) {
                const State& from = best[k][first];
                for (std::size_t last = first + 1; last <= free.size(); ++last) {
                    const double fullest = std::max(from.fullest, load(free, first, last, gpu));
                    State& to = best[k + 1][last];
                    if (fullest >= to.fullest) continue;
                    to = {fullest, from.gpu_of};
                    to.gpu_of.resize(last, gpu);
                }
            }
        }
    }
    const State& found = best[count][free.size()];
    PACE_CHECK(found.gpu_of.size() == free.size(), "no more GPUs than units");
    for (std::size_t i = 0; i < free.size(); ++i) put(free[i], found.gpu_of[i]);
}

}  // namespace

Fill fill_in_order(const std::vector<FillUnit>& units, const std::vector<FillGpu>& gpus) {
    PACE_CHECK(!gpus.empty(), "there is a GPU");
    const std::size_t target = free_units(units, true).size();
    const std::vector<std::size_t> drafts = free_units(units, false);
    const std::size_t most = std::clamp<std::size_t>(target, 1, gpus.size());
    const std::size_t left = gpus.size() - std::min(gpus.size(), drafts.size());
    std::optional<Fill> nearest;
    for (std::size_t count = std::clamp<std::size_t>(left, 1, most); count <= most; ++count) {
        Filling filling{units, gpus};
        filling.put_named();
        filling.put_target(count);
        for (const std::size_t draft : drafts) filling.put_draft(draft);
        const Fill& fill = filling.fill();
        if (!fill.failure) return fill;
        if (!nearest || fill.failure->missing < nearest->failure->missing) nearest = fill;
    }
    return *nearest;
}

}  // namespace paceline
