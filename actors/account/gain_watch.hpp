// GainWatch: whether drafting pays at all, by the time that tokens take with and without it.
//
//                    the budget does not cover a candidate
//        [Drafts] -----------------------------------------> [Plain]
//          ^  |  a plain round now and then,                    |  every token adds kAllowance
//          |  +- to know what it takes                          |  to the budget
//          +----------------------------------------------------+
//                    the budget is kStart: a probe
//
// The budget is the time that drafting may lose, in times of a plain token. A round with drafts
// adds the tokens that it commits and takes off its own time. What a candidate costs beyond a plain
// round is known from earlier rounds (a mean that rises faster than it falls), so a round may have
// as many candidates as the share kRisk of the budget pays for, and one at least: the first
// candidate of a chain is the likeliest. A method that gains with long chains alone may therefore
// stay off. Jobs that look for a better skip set are paid from the budget as well. Hence
//
//     time lost to drafting  <=  kStart + kAllowance of the plain time + what one round overdraws
//
// which is 5 of 256 tokens: a method that loses reaches 0.98 of plain decoding over one answer. An
// overdraft is repaid before the next probe, up to kDebtMost. It is small except in the first
// rounds, when the cost of a candidate is unknown and may exceed kStart: a round counts at most
// kOutlier times the expected one, so that a pause of the machine does not turn a method off, and
// what a first round took beyond that is not repaid. Gains count up to kMost, which is also the
// most that a method loses when it turns bad. If the plain rounds after that show that the machine
// has become slower by kSlower, and that by this measure the rounds with drafts had gained, the
// debt is cancelled: it was the machine's. A method that begins to gain is probed within kStart
// / kAllowance = 250 tokens; the more its rounds vary, the more probes it may take. Kept across
// requests. Not thread-safe. Pure: times come from outside; the text does not depend on it.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace paceline {

class GainWatch {
public:
    using Micros = std::chrono::microseconds;

    static constexpr int kAnyNumber = std::numeric_limits<int>::max();
    static constexpr std::int32_t kPlainFirst = 8;  // rounds before the first one with drafts
    // Rounds with drafts between two plain ones: kCheckFirst, doubled each time up to kCheckMost.
    static constexpr std::int32_t kCheckFirst = 4;
    static constexpr std::int32_t kCheckMost = 64;
    // The budget, in plain tokens.
    static constexpr double kStart = 2.5;
    static constexpr double kAllowance = 0.01;
    static constexpr double kRisk = 0.5;
    static constexpr double kMost = 24.0;
    static constexpr double kDebtMost = 96.0;      // repaid by 9,600 plain tokens
    static constexpr std::size_t kPlainKept = 11;  // plain rounds that are compared with
    static constexpr double kOutlier = 2.0;        // a longer round counts as so many expected ones
    // More than plain rounds vary by themselves, so that noise cancels no debt.
    static constexpr double kSlower = 1.3;     // plain rounds now over those of before
    static constexpr double kHadGained = 1.1;  // the rounds with drafts over plain ones now
    static constexpr double kNew = 0.1;        // weight of the newest round with drafts,
    static constexpr double kDearer = 0.5;     // in what a candidate costs, if it cost more

    struct Options {
        bool enabled = true;  // false: it always drafts
        std::int32_t plain_first = kPlainFirst;
        std::int32_t check_first = kCheckFirst;
        std::size_t plain_kept = kPlainKept;  // at most kPlainKept: fewer follow a growing context
    };
    explicit GainWatch(bool enabled) : GainWatch{Options{.enabled = enabled}} {}
    explicit GainWatch(const Options& options)
        : options_{options}, check_every_{options.check_first} {}

    /// The most candidates of the round that begins now; 0: it is to be plain. Once per round.
    [[nodiscard]] int ask();
    /// A round has verified so many candidates (0: it was plain) and committed so many tokens in so
    /// long. A round without tokens or time is ignored.
    void round(Micros took, double tokens, double candidates);
    /// The same for a round that was allowed candidates, also if it has verified none: waits and
    /// passes cost time all the same.
    void drafted(Micros took, double tokens, double candidates);
    /// Whether a job beside the rounds that takes about so long may run now. If not, no probe
    /// begins in the next round unless the budget covers both. Asked before the ask() of each round
    /// while a job is due.
    [[nodiscard]] bool affords(Micros job);
    /// A job has taken so long, in no round's time.
    void paid(Micros job);

    /// Time per token without drafts over that with them, since drafting began or was probed last;
    /// 0: not known yet.
    [[nodiscard]] double gain() const;
    /// Of a token without drafts; 0: not known yet.
    [[nodiscard]] Micros plain_token() const;
    /// Whether it is in Drafts; single plain rounds do not count.
    [[nodiscard]] bool drafting() const { return !options_.enabled || drafting_; }

private:
    /// Fading sums over rounds with drafts.
    struct DraftedRounds {
        double time = 0.0;  // the first without outliers
        double tokens = 0.0;
        double whole_time = 0.0;  // the same with outliers
    };
    void plain_round(double took, double tokens);
    void drafted_round(double took, double tokens, double candidates);
    void turn_off();
    void cancel_debt_of_slower_machine();
    void add(double tokens);                  // to the budget
    [[nodiscard]] double plain_time() const;  // of a token; 0: not known yet

    Options options_;
    bool drafting_ = true;
    double budget_ = kStart;
    double awaited_ = 0.0;    // of the budget, by a job; of the round that begins next
    double candidate_ = 0.0;  // what one costs, in plain tokens; 0: not known yet
    std::int32_t check_every_;
    std::int32_t since_check_ = 0;
    std::array<double, kPlainKept> plain_{};  // time per token, newest rounds, a ring
    std::size_t plain_count_ = 0;             // of all rounds
    DraftedRounds drafted_;
    double plain_before_ = 0.0;    // plain_time() when drafting was turned off; 0: it is looked at
    std::size_t plain_since_ = 0;  // plain rounds since then
};

}  // namespace paceline
