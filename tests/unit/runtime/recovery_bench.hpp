// Recovery with three stages, and its commands as words: "kill 2.1" is Kill of stage 2, epoch 1.
#pragma once

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "runtime/parent/recovery.hpp"

namespace paceline::test {

inline constexpr StageId kDraft{1};
inline constexpr StageId kFirst{2};
inline constexpr StageId kLast{3};

/// Commands as words: "kill 2.1" is Kill of stage 2, epoch 1.
struct Words {
    static std::string name(StageId id, Epoch epoch) {
        return std::to_string(id.value) + "." + std::to_string(epoch.value);
    }
    static std::string list(const std::vector<StageId>& ids) {
        std::string text;
        for (const StageId id : ids) text += " " + std::to_string(id.value);
        return text;
    }
    std::string operator()(const Recovery::Kill& c) const { return "kill " + name(c.id, c.epoch); }
    std::string operator()(const Recovery::Spawn& c) const {
        return "spawn " + name(c.id, c.epoch);
    }
    std::string operator()(const Recovery::Lost& c) const {
        return "lost " + std::to_string(c.id.value);
    }
    std::string operator()(const Recovery::Unwire& c) const {
        return "unwire " + name(c.id, c.epoch) + " from" + list(c.survivors);
    }
    std::string operator()(const Recovery::Join& c) const {
        return "join " + name(c.id, c.epoch) + " to" + list(c.survivors);
    }
    std::string operator()(const Recovery::Joined& c) const {
        return "joined " + name(c.id, c.epoch);
    }
    std::string operator()(const Recovery::Disabled& c) const {
        return "disabled " + std::to_string(c.id.value);
    }
    std::string operator()(const Recovery::GiveUp& c) const { return "give up: " + c.error.what; }
};

struct Bench {
    explicit Bench(RestartRules rules = {})
        : recovery{{{kDraft, "draft", OnDeath::RestartAlone},
                    {kFirst, "segment-1", OnDeath::RebuildChain},
                    {kLast, "segment-2", OnDeath::RebuildChain}},
                   std::move(rules)} {}
    std::vector<std::string> said() {
        std::vector<std::string> words;
        while (const auto command = recovery.next()) words.push_back(std::visit(Words{}, *command));
        return words;
    }
    /// When it loads again, which is now by `tick()`.
    Micros rested(StageId id, Micros now) {
        if (recovery.health_of(id) == StageHealth::Resting) now = std::max(now, *recovery.due());
        recovery.tick(now);
        CHECK(recovery.health_of(id) == StageHealth::Loading);
        return now;
    }
    /// It loads, and everything is wired by `now`.
    void comes_up(StageId id, Epoch epoch, Micros now) {
        recovery.greeted(id, epoch, now);
        for (const StageId other : {kDraft, kFirst, kLast}) {
            if (other != id) recovery.rewired(other, id, epoch, now);
        }
        recovery.ready(id, epoch, now);
    }
    Recovery recovery;
};

using Said = std::vector<std::string>;

}  // namespace paceline::test
