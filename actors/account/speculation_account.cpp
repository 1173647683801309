#include "actors/account/speculation_account.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "actors/account/request_class.hpp"
#include "actors/account/row_choice.hpp"

namespace paceline {
namespace {

constexpr double kUnknown = -1.0;

bool differs(float a, float b) {
    return std::abs(a - b) > SpeculationAccount::kPriceChange * std::max(a, b);
}

bool differs(const msg::Price& a, const msg::Price& b) {
    return a.mode != b.mode || a.candidates_max != b.candidates_max ||
           differs(a.token_us, b.token_us) || differs(a.plain_us, b.plain_us) ||
           differs(a.row_us, b.row_us) || differs(a.pass_share, b.pass_share) ||
           differs(a.extra_us, b.extra_us);
}

std::size_t times_index(std::size_t requests) {
    return static_cast<std::size_t>(class_of(requests));
}

}  // namespace

int SpeculationAccount::allowed() const {
    if (random()) return random_allowed_;
    switch (options_.controller) {
        case Controller::Off:
            return GainWatch::kAnyNumber;
        case Controller::On:
            return turns_.allowed();
        case Controller::Guard:
            return turns_.allowed() > 0 ? GainWatch::kAnyNumber : 0;
        case Controller::Plain:
            break;
    }
    return 0;
}

/// Tokens per microsecond of so many requests without speculation; 0: not known yet.
double SpeculationAccount::plain_rate(std::size_t requests) const {
    const auto token = static_cast<double>(turns_.plain_token().count());
    return token > 0.0 ? static_cast<double>(requests) / token : 0.0;
}

std::size_t SpeculationAccount::rows_of_round(std::span<const double> probabilities,
                                              BatchSize size,
                                              Micros waited) const {
    if (random()) return random_() % (probabilities.size() + 1);
    if (takes_all()) return probabilities.size();
    const RowPrices prices{.fixed_us = static_cast<double>(waited.count()) + hops_.mean(),
                           .plain_rate = plain_rate(size.requests),
                           .time_us = [&](std::uint32_t rows) {
                               size.rows = rows;
                               const double time = costs_.expected(size).sum_us;
                               return time > 0.0 ? time : kUnknown;
                           }};
    return rows_worth(probabilities, size.requests, prices);
}

std::size_t SpeculationAccount::rows_ahead(std::span<const double> probabilities,
                                           BatchSize size) const {
    if (probabilities.empty()) return 0;
    if (random()) return random_() % (probabilities.size() + 1);
    if (takes_all()) return probabilities.size();
    const double gain = std::max(turns_.gain(), 1.0);
    // The root that follows a wrong batch waits for the rest of the job that runs; and where
    // processes share cores, every job slows the others.
    const double share = (1.0 - probabilities.front()) / 2.0 + pass_share();
    const double rate = plain_rate(turns_.requests()) * gain;
    const RowPrices prices{.plain_rate = rate, .time_us = [&](std::uint32_t rows) {
                               size.rows = rows;
                               const double time = costs_.expected(size).longest_us;
                               return time > 0.0 ? share * time : kUnknown;
                           }};
    return rows_worth(probabilities, 0, prices);
}

std::uint32_t SpeculationAccount::rows_beside(BatchSize size,
                                              std::uint64_t context,
                                              double times) const {
    const double alone = costs_.expected(size).sum_us;
    const double most = times * alone;
    if (most <= 0.0) return 0;
    if (const double row = prompt_costs_.row_us(context); row > 0.0) {
        const double rows = (most - alone) / row;
        return static_cast<std::uint32_t>(std::min<double>(rows, kBatchRowsMax));
    }
    const std::uint32_t own = size.rows;
    while (size.rows < kVerifyRowsMax) {
        ++size.rows;
        if (costs_.expected(size).sum_us > most) return size.rows - own - 1;
    }
    return size.rows - own;
}

void SpeculationAccount::formed(std::span<const Part> parts,
                                const BatchSize& size,
                                const PromptRows& prompts,
                                std::size_t running,
                                bool alone,
                                Micros now) {
    random_allowed_ = static_cast<int>(random_() % 6);
    const GuardTurns::Tag tag = turns_.formed(running, alone, now);
    rows_.add(size.rows);
    newest_ = size;
    for (const Part& part : parts) {
        pending_[{part.request, part.batch}] = {.tag = tag,
                                                .plain = turns_.allowed() == 0,
                                                .size = size,
                                                .prompts = prompts,
                                                .candidates = part.candidates,
                                                .alone = alone,
                                                .formed = now};
    }
}

void SpeculationAccount::changed(RequestId request) {
    turns_.interrupted();
    std::erase_if(pending_, [&](const auto& entry) { return entry.first.first == request; });
}

void SpeculationAccount::judged(std::span<const JudgedNode> nodes, bool drawn) {
    for (const JudgedNode& node : nodes) {
        rates_.learn({.origin = node.origin, .drawn = drawn}, node.log_prob, node.right);
        if (node.origin == msg::Origin::Lookup || node.origin == msg::Origin::Forced) continue;
        const bool of_exit = node.origin == msg::Origin::Exit || node.origin == msg::Origin::Heads;
        const Group group = of_exit ? Group::Exits : Group::Drafts;
        groups_[static_cast<std::size_t>(group)].quiet = 0.0;
    }
}

void SpeculationAccount::verified(
    RequestId request, BatchId batch, int tokens, const msg::BatchCost& cost, Micros now) {
    const auto found = pending_.find({request, batch});
    if (found == pending_.end()) return;
    const Pending sent = found->second;
    // Those of older batches were wrong: they get no verdict any more.
    std::erase_if(pending_, [&](const auto& entry) {
        return entry.first.first == request && !(batch < entry.first.second);
    });
    const bool roots_alone = sent.size.rows == sent.size.requests;
    if (cost.known()) {
        // Jobs cannot have taken longer than the batch was on its way.
        const auto way =
            static_cast<std::uint32_t>(std::max<Micros::rep>((now - sent.formed).count(), 1));
        const msg::BatchCost real{.sum_us = std::min(cost.sum_us, way),
                                  .longest_us = std::min(cost.longest_us, way)};
        costs_.learn(sent.size, real);
        if (roots_alone) {
            BatchTimes& times = batch_times_.at(times_index(sent.size.requests));
            (sent.plain ? times.plain : times.loaded).add(real.sum_us);
        }
        if (sent.alone) hops_.add(way - real.sum_us);
    }
    // All verdicts of a batch come together: the first one teaches.
    if (sent.prompts.rows > 0 && sent.prompts.teaches && sent.alone &&
        std::exchange(prompts_learned_, sent.formed) != sent.formed) {
        const double alone_us = costs_.expected(sent.size).sum_us;
        const auto way = static_cast<double>((now - sent.formed).count());
        const double extra = way - hops_.mean() - alone_us;
        // A tenth of what a verify row takes, at least: noise alone does not make a row free.
        const double least = 0.1 * alone_us * sent.prompts.rows / sent.size.rows;
        if (alone_us > 0.0) prompt_costs_.learn(sent.prompts, std::max(extra, least));
    }
    const int before = turns_.allowed();
    const std::uint64_t ended = turns_.turns_ended();
    const double of_each = static_cast<double>(tokens) / static_cast<double>(turns_.requests());
    for (GroupState& group : groups_) group.quiet += of_each;
    const bool natural_plain = options_.free_candidates && sent.candidates == 0;
    turns_.verified(sent.tag, tokens, sent.candidates, natural_plain, now);
    if (before > 0 && turns_.turns_ended() != ended) next_turn();
}

const SpeculationAccount::BatchTimes& SpeculationAccount::batch_times() const {
    return batch_times_.at(times_index(newest_.requests));
}

/// A turn of speculation has ended.
void SpeculationAccount::next_turn() {
    for (GroupState& group : groups_) {
        if (group.probes > 0) {
            --group.probes;
        } else if (group.quiet >= kQuietTokens) {
            group.quiet = 0.0;
            group.probes = kProbeTurns;
        }
    }
}

/// By which part of its time a pass makes decoding longer.
double SpeculationAccount::pass_share() const {
    if (options_.sequential) return 1.0;
    const BatchTimes& times = batch_times();
    if (!times.known()) return 0.0;
    return std::clamp(1.0 - (times.plain.mean() / times.loaded.mean()), 0.0, 1.0);
}

msg::Price SpeculationAccount::price_of(Group of) {
    GroupState& group = groups_[static_cast<std::size_t>(of)];
    msg::Price price{};
    const bool works_next = of == Group::Drafts && options_.sequential;
    int next = works_next ? turns_.allowed_next() : turns_.allowed();
    if (options_.controller == Controller::Plain) next = 0;
    const bool off = next == 0;
    if (takes_all() && !off) next = kVerifyRowsMax;
    // Back after more than a single plain turn: what was known by then may have changed.
    if (!off && group.off && group.told) group.probes = kProbeTurns;
    group.off = off && (options_.controller == Controller::Plain || !turns_.speculates());
    price.mode = group.off                         ? msg::SpeculationMode::Off
                 : off                             ? msg::SpeculationMode::Rest
                 : group.probes > 0 || takes_all() ? msg::SpeculationMode::Probe
                                                   : msg::SpeculationMode::On;
    price.candidates_max = static_cast<std::uint32_t>(std::min<int>(next, kVerifyRowsMax));
    // A pass or a row gives tokens to one request and takes the time of all.
    const auto running = static_cast<float>(std::max<std::size_t>(turns_.requests(), 1));
    const float plain = static_cast<float>(turns_.plain_token().count()) / running;
    price.plain_us = plain;
    price.token_us = plain / std::max(static_cast<float>(turns_.gain()), 1.0F);
    const auto rows = std::clamp(static_cast<std::uint32_t>(rows_.mean()),
                                 std::min(std::max(newest_.requests, 1U), kVerifyRowsMax - 2),
                                 kVerifyRowsMax - 2);
    const auto at = [&](std::uint32_t count) {
        BatchSize size = newest_;
        size.rows = count;
        return costs_.expected(size).sum_us;
    };
    price.row_us = static_cast<float>(std::max((at(rows + 2) - at(rows)) / 2.0, 0.0));
    price.pass_share = static_cast<float>(pass_share());
    if (const BatchTimes& times = batch_times(); times.known())
        price.extra_us =
            static_cast<float>(std::max(times.loaded.mean() - times.plain.mean(), 0.0));
    return price;
}

msg::Price SpeculationAccount::random_price() {
    const auto micros = [&] { return static_cast<float>(random_() % 5000); };
    msg::Price price{};
    price.mode = static_cast<msg::SpeculationMode>(random_() % 4);
    price.candidates_max = static_cast<std::uint32_t>(random_() % (kVerifyRowsMax + 1));
    price.token_us = micros();
    price.plain_us = micros();
    price.row_us = micros();
    price.pass_share = static_cast<float>(random_() % 101) / 100.0F;
    price.extra_us = micros();
    return price;
}

std::optional<msg::Price> SpeculationAccount::take_price(Group group) {
    if (options_.controller == Controller::Off) return std::nullopt;
    if (random()) return random_price();
    GroupState& state = groups_[static_cast<std::size_t>(group)];
    const msg::Price price = price_of(group);
    if (state.told && !differs(*state.told, price)) return std::nullopt;
    state.told = price;
    return price;
}

}  // namespace paceline
