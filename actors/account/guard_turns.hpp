// GuardTurns: GainWatch for a dispatcher: several requests at once, whose batches may overlap.
//
// All requests speculate in a turn, or none does, so that the time of a turn is that of one kind. A
// turn has one verdict per running request:
//
//     formed()     a verify batch goes out. It belongs to the phase: the turns of one kind that
//                  follow each other. The kind of the turn after this one is decided now, so that
//                  the other stages know it before the verdict which begins it
//     verified()   a verdict. One of a batch of an earlier phase only settles: the turn begins
//                  after it. The last one of a turn ends it, and its time goes to the GainWatch
//
//   phase    | speculative  1  2  3  | plain  4    | speculative 5
//   batches  |   a  b  c  d  e       | f           | g
//   verdicts |      a  b  c          | d  e  f     |     turn 4: from the verdict of e to that of f
//
// A turn is not counted if a prompt shared a batch, the number of requests changed, or a plain turn
// verified candidates that were under way (it is faster than plain decoding). The gain of
// speculation depends on how many requests are decoded at once: there is a GainWatch for 1, 2, 3 to
// 4, 5 to 8 requests and so on, kept over requests.
// Not thread-safe. Pure: times come by calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "actors/account/gain_watch.hpp"

namespace paceline {

class GuardTurns {
public:
    using Micros = GainWatch::Micros;
    static constexpr std::int32_t kPlainFirst = 3;  // turns before the first one that speculates
    static constexpr std::int32_t kCheckFirst = 16;
    static constexpr std::size_t kPlainKept = 5;  // contexts grow: older ones were faster
    static constexpr double kOutlier = 3.0;       // times plain: more is a pause of the machine

    /// What a batch keeps until its verdict.
    struct Tag {
        std::uint64_t phase = 0;
    };

    /// The most candidates of a request in the turn that runs; 0: it is plain.
    [[nodiscard]] int allowed() const { return turn_.allowed; }
    /// Of the turn that comes next.
    [[nodiscard]] int allowed_next() const { return next_; }
    /// Turns that have ended.
    [[nodiscard]] std::uint64_t turns_ended() const { return turns_ended_; }
    /// Whether the GainWatch of now speculates; single plain turns do not count.
    [[nodiscard]] bool speculates() const { return watch_ == nullptr || watch_->drafting(); }

    /// A verify batch goes out. `requests`: that are decoded. `alone`: no other verify batch is on
    /// its way.
    [[nodiscard]] Tag formed(std::size_t requests, bool alone, Micros now);
    /// A verdict of a batch has committed so many tokens; so many candidates had been sent.
    /// `natural_plain`: the round was what plain decoding does, though candidates were allowed.
    void verified(const Tag& tag, int tokens, int candidates, bool natural_plain, Micros now);
    /// The current turn is not counted: a prompt shares its time.
    void disturbed() { turn_.counts = false; }
    /// A request has begun or ended: the time until the next batch belongs to no turn.
    void interrupted() { interrupted_ = true; }

    /// That are decoded, by the newest batch; 0: none has gone out.
    [[nodiscard]] std::size_t requests() const { return requests_; }
    /// Time per token of a request without speculation; 0: not known yet.
    [[nodiscard]] Micros plain_token() const {
        return watch_ == nullptr ? Micros{0} : watch_->plain_token();
    }
    /// Time per token without speculation over that with it, of the last turns; 0: not known yet.
    [[nodiscard]] double gain() const { return watch_ == nullptr ? 0.0 : watch_->gain(); }
    /// Of all turns since the beginning, plain ones included: what the tokens would have taken
    /// without speculation, by the plain turns next to them, and what they took, in microseconds.
    [[nodiscard]] double plain_took_us() const { return plain_took_; }
    [[nodiscard]] double took_us() const { return took_; }

private:
    /// The turn that runs.
    struct Turn {
        int allowed = 0;
        Micros begun{0};
        bool counts = true;
        std::size_t verdicts = 0;
        int tokens = 0;
        int candidates = 0;
        bool natural_plain = true;
    };
    void begin_turn(int allowed, Micros now);
    void end_turn(Micros now);

    std::map<int, GainWatch> watches_;  // by class_of() the requests
    GainWatch* watch_ = nullptr;        // of the number of requests now
    std::size_t requests_ = 0;
    std::uint64_t phase_ = 0;
    std::uint64_t turns_ended_ = 0;
    Turn turn_ = {.counts = false};
    int next_ = 0;
    bool decided_ = false;  // next_
    bool interrupted_ = true;
    double plain_took_ = 0.0;  // of all turns' tokens without speculation, microseconds
    double took_ = 0.0;        // of all turns; an interrupted one counts kOutlier times its tokens
};

}  // namespace paceline
