// GainWatch: turns drafting off while it costs more than it saves, by the time per token with and without it.
//
//                    the budget is used up
//        [Drafts] ------------------------------> [Plain]
//          ^  |  a plain round now and then,         |  every token adds a little to the budget
//          |  +- to know what it takes               |
//          +-----------------------------------------+
//                    the budget is kProbe: a probe
//
// The budget is the time that drafting may lose, in units of the time of a plain token. A round with drafts
// adds the time that its tokens take plainly and subtracts the time that it took. A plain token adds
// `allowance`: kAllowanceFirst of a token at first, half of it after each failed probe, at least
// kAllowanceLeast. Hence
//
//     time lost to drafting  <=  kStart + a few first probes + 1 % of the plain time
//                                + what the last round of each probe overdraws
//
// as long as no probe overdraws more than kDebt; otherwise the debt counts as kDebt, and as twice
// as much after each further such probe, up to kDebtMost. The budget is at most kMost, so a method that
// becomes slower than plain decoding is turned off after kMost lost tokens.
// A method twice as slow per token reaches about 0.98 of plain decoding over 2,000 rounds (up to
// four tokens a round); one that is 1.3 times as fast reaches 0.99 of its speed. A method that begins to pay
// is probed within (kProbe + kDebt) / kAllowanceLeast = 900 tokens, and turned on by the first probe that
// gains; the more its rounds vary, the more probes this may take.
// Kept across requests. Not thread-safe. Pure: times come from outside; the text does not depend on it.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace paceline {

class GainWatch {
public:
    using Micros = std::chrono::microseconds;

    static constexpr std::int32_t kPlainFirst = 3;  // rounds before the first one with drafts
    // Rounds with drafts between two plain ones: kCheckFirst, doubled each time up to kCheckMost.
    static constexpr std::int32_t kCheckFirst = 4;
    static constexpr std::int32_t kCheckMost = 64;
    // The budget, in plain tokens.
    static constexpr double kStart = 8.0;
    static constexpr double kProbe = 4.0;
    static constexpr double kSure =
        16.0;  // from here on drafting pays: failed probes are forgotten
    static constexpr double kMost = 48.0;
    static constexpr double kDebt = 5.0;
    static constexpr double kDebtMost = 40.0;
    static constexpr double kAllowanceFirst = 0.04;
    static constexpr double kAllowanceLeast = 0.01;
    static constexpr double kOutlier = 3.0;  // a longer round with drafts counts as so many means
    static constexpr double kNew = 0.05;     // weight of the newest round with drafts

    /// `enabled` false: it always drafts.
    explicit GainWatch(bool enabled) : enabled_{enabled} {}

    /// Whether the round that begins now is to be drafted. Once per round.
    [[nodiscard]] bool ask();
    /// A round, drafted or not as ask() said, has committed so many tokens in so long. A round
    /// without tokens or time is ignored.
    void round(bool drafted, Micros took, int tokens);

    /// Time per token without drafts over that with them, since drafting began or was probed last;
    /// 0: not known yet.
    [[nodiscard]] double gain() const;
    /// Whether it is in Drafts; single plain rounds do not count.
    [[nodiscard]] bool drafting() const { return !enabled_ || drafting_; }

private:
    static constexpr std::size_t kPlainKept = 11;

    void plain_round(double took, int tokens);
    void drafted_round(double took, int tokens);
    void stop();
    [[nodiscard]] double plain_time() const;  // of a token; 0: not known yet

    bool enabled_;
    bool drafting_ = true;
    bool probed_ = false;  // stopped at least once
    double budget_ = kStart;
    double allowance_ = kAllowanceFirst;
    double debt_ = kDebt;
    std::int32_t check_every_ = kCheckFirst;
    std::int32_t since_check_ = 0;
    std::array<double, kPlainKept> plain_{};  // time per token, newest rounds, a ring
    std::size_t plain_count_ = 0;             // of all rounds
    bool warm_ = false;                       // the first round with drafts is over
    double mean_round_ = 0.0;
    std::int64_t rounds_ = 0;    // behind mean_round_
    double drafted_time_ = 0.0;  // fading sums
    double drafted_tokens_ = 0.0;
};

}  // namespace paceline
