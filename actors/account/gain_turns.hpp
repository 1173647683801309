// GainTurns: GainWatch for several requests at once. Requests that are verified together take turns
// together: all of them draft, or none does, so that the time of a turn is that of one kind.
//
//     begin()      a round of a request begins; the first after a verdict begins a turn and asks
//     verified()   a verdict about a round has committed so many tokens
//     disturbed()  a prompt shares the batch: the turn is not counted
//     job_ended()  a job that looks for a better skip set: its time belongs to no turn, but is paid
//
// A turn ends with the last verdict before the next begin(). It counts as a round of one request:
// its time, with the mean of its requests' tokens and candidates. A turn is not counted if a
// verdict came about a round of an older one, or if it was to be drafted and nothing was. The gain
// of drafting depends on how many requests are decoded at once: there is a GainWatch for 1, 2, 3 to
// 4, 5 to 8 requests and so on.
// Not thread-safe. Pure: times come from outside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "actors/account/gain_watch.hpp"

namespace paceline {

class GainTurns {
public:
    using Micros = GainWatch::Micros;

    struct Round {
        std::uint64_t turn = 0;  // 0: it could not be drafted, and is plain in any turn
        int candidates = 0;      // at most; 0: it is plain
        [[nodiscard]] bool drafts() const { return candidates > 0; }
    };

    /// `enabled` false: every round is drafted.
    explicit GainTurns(bool enabled) : enabled_{enabled} {}

    /// A round begins that could be drafted. `requests`: that are decoded at once, this one
    /// included. `since`: the verdict before it, or now if there was none.
    [[nodiscard]] Round begin(std::size_t requests, Micros since);
    /// `candidates`: that the round's request has verified.
    void verified(const Round& round, int tokens, int candidates, Micros now);
    void disturbed() { counts_ = false; }
    /// Whether a job may run that takes about so long (GainWatch::affords()).
    [[nodiscard]] bool affords(std::size_t requests, Micros job) {
        return watch_for(requests).affords(job);
    }
    void job_ended(std::size_t requests, Micros took, Micros now);

    /// Of so many requests: GainWatch::gain() and drafting().
    [[nodiscard]] const GainWatch& watch(std::size_t requests) { return watch_for(requests); }

private:
    [[nodiscard]] GainWatch& watch_for(std::size_t requests);
    void close();

    bool enabled_;
    std::map<int, GainWatch> watches_;  // by class_of() the requests
    // The turn.
    std::uint64_t turn_ = 0;
    GainWatch* asked_ = nullptr;  // nullptr: there is no turn
    int allowed_ = 0;             // candidates of each request
    bool counts_ = false;
    int verdicts_ = 0;
    int tokens_ = 0;
    int candidates_ = 0;
    Micros begun_{0};
    Micros last_verdict_{0};
    Micros job_end_{0};  // of the last one
};

}  // namespace paceline
