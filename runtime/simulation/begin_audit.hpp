// BeginAudit: checks the Begins that are delivered to the incarnations of stages: for an actor of
// one incarnation the attempts of a request only grow. The same attempt may come once more if the
// stage has asked for it (control::BeginWanted).
//
// One thread.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "ipc/wire/control.hpp"

namespace paceline {

class BeginAudit {
public:
    /// An actor of an incarnation.
    struct Receiver {
        std::uint32_t serial;
        StageId actor;
        friend auto operator<=>(const Receiver&, const Receiver&) = default;
    };

    void asked(Receiver who, RequestId request) { asked_.insert({who, request}); }
    /// The attempt that was delivered before, if this one must not follow it.
    [[nodiscard]] std::optional<Attempt> deliver(Receiver who, const control::Begin& begin) {
        const RequestAt at{who, begin.request};
        const auto [last, first] = begun_.try_emplace(at, begin.attempt);
        const Attempt before = std::exchange(last->second, begin.attempt);
        const bool again = asked_.erase(at) != 0 && begin.attempt == before;
        if (first || again || begin.attempt > before) return std::nullopt;
        return before;
    }

private:
    using RequestAt = std::pair<Receiver, RequestId>;

    std::map<RequestAt, Attempt> begun_;
    std::set<RequestAt> asked_;  // whose Begin is to come once more
};

}  // namespace paceline
