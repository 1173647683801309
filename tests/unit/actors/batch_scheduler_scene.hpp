// BatchSchedulerScene: a scheduler, requests whose text an oracle knows, and a scripted target that
// verifies batches in their order. What must hold of every batch is checked as it is formed.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include "actors/protocol/message_checks.hpp"
#include "actors/segment/batch_scheduler.hpp"

namespace paceline::testing {

inline constexpr int kSceneVocab = 6;
inline constexpr TokenId kSceneEnd = 5;

class BatchSchedulerScene {
public:
    struct Job {
        std::vector<TokenId> oracle;                   // prompt and the answer that must come out
        std::shared_ptr<RequestState> state;           // the scheduler's
        std::shared_ptr<RequestState> verifier_state;  // another segment's
        std::set<std::uint32_t> sent;                  // names of nodes
        std::uint64_t last_served = 0;                 // batch
        std::size_t in_flight = 0;                     // parts
    };

    BatchSchedulerScene(DispatchOptions options, std::int32_t kv_slots)
        : scheduler{options, kv_slots}, options_{options}, kv_slots_{kv_slots} {}

    static RequestId id_of(std::size_t index) { return RequestId{index + 1}; }

    /// The answer ends with an end token at its last place, or by its count.
    void begin(std::vector<TokenId> prompt, std::vector<TokenId> answer) {
        Request request;
        request.text = prompt;
        request.end_tokens = {kSceneEnd};
        request.max_tokens = static_cast<std::int32_t>(answer.size());
        request.context = static_cast<Position>(prompt.size() + answer.size()) + 8;
        const RequestId id = id_of(jobs.size());
        Job job;
        job.state =
            std::make_shared<RequestState>(id, Attempt{1}, BeginPayload{request}, TreeRole::Names);
        job.verifier_state = std::make_shared<RequestState>(id, Attempt{1}, BeginPayload{request},
                                                            TreeRole::Follows);
        scheduler.begin(job.state, now);
        job.oracle = std::move(prompt);
        job.oracle.insert(job.oracle.end(), answer.begin(), answer.end());
        job.last_served = batches;
        jobs.push_back(std::move(job));
    }

    /// The next batch, checked; it is in flight then.
    bool form() {
        std::optional<msg::Batch> batch = scheduler.next_batch(now);
        if (!batch) return false;
        ++batches;
        // As the segment does that passes it on.
        batch->tensor_rows = static_cast<std::uint32_t>(batch->rows.size());
        for (std::uint32_t r = 0; r < batch->tensor_rows; ++r) batch->rows[r].tensor_row = r;
        const MessageLimits limits{.vocab_size = kSceneVocab,
                                   .kv_slots = kv_slots_,
                                   .context = kv_slots_,
                                   .batch_rows = options_.batch_rows()};
        const Status form = check_message(*batch, limits);
        REQUIRE_MESSAGE(form.ok(), (form.ok() ? "" : form.error().what));
        REQUIRE(batch->parts.size() <= options_.requests_max);
        std::uint32_t begin = 0;
        for (const msg::BatchPart& part : batch->parts) {
            check_part(part, std::span{batch->rows}.subspan(begin, part.rows));
            begin += part.rows;
        }
        in_flight.push_back(*batch);
        return true;
    }

    /// The target verifies the oldest batch; scheduler and states apply its verdicts. Returns them.
    std::vector<msg::Verdict> verify() {
        REQUIRE_FALSE(in_flight.empty());
        const msg::Batch batch = in_flight.front();
        in_flight.pop_front();
        std::vector<msg::Verdict> verdicts;
        std::uint32_t begin = 0;
        for (const msg::BatchPart& part : batch.parts) {
            const auto rows = std::span{batch.rows}.subspan(begin, part.rows);
            begin += part.rows;
            Job& job = jobs[part.request.value - 1];
            --job.in_flight;
            if (part.kind == msg::BatchKind::Prefill) {
                REQUIRE(job.verifier_state->take_prefill(part.base, rows));
                continue;
            }
            if (job.verifier_state->over()) continue;
            const std::optional<msg::Verdict> verdict = verdict_on(job, rows);
            if (!verdict) continue;
            apply(job, *verdict);
            verdicts.push_back(*verdict);
        }
        return verdicts;
    }

    [[nodiscard]] bool all_over() const {
        return std::all_of(jobs.begin(), jobs.end(),
                           [](const Job& job) { return job.state->over(); });
    }

    /// A proposal below the text's token at `root_position`, with no nodes yet.
    [[nodiscard]] msg::Proposal proposal(std::size_t job, Position root_position) const {
        msg::Proposal made{};
        made.route = {.request = id_of(job), .attempt = Attempt{1}, .epoch = Epoch{1}};
        made.root_position = root_position;
        made.root_token = jobs[job].oracle[static_cast<std::size_t>(root_position)];
        made.state = msg::ProposalState::Complete;
        return made;
    }
    static std::int16_t add(msg::Proposal& proposal,
                            std::int16_t parent,
                            TokenId token,
                            float log_prob = -0.1F,
                            msg::Origin origin = msg::Origin::Trunk) {
        proposal.nodes[proposal.count] = {token, parent, origin, 0, log_prob};
        return static_cast<std::int16_t>(proposal.count++);
    }

    BatchScheduler scheduler;
    Micros now{1000};
    std::vector<Job> jobs;
    std::deque<msg::Batch> in_flight;
    std::uint64_t batches = 0;
    std::uint64_t rows_sent = 0;    // of verify parts
    std::uint64_t rows_wasted = 0;  // of these, not committed
    std::vector<Outcome> outcomes;  // of roots, as known when their verdict came

private:
    void check_part(const msg::BatchPart& part, std::span<const msg::BatchRow> rows) {
        Job& job = jobs.at(part.request.value - 1);
        REQUIRE(part.attempt == job.state->attempt());
        REQUIRE_FALSE(job.state->over());
        job.last_served = batches;
        ++job.in_flight;
        for (const msg::BatchRow& row : rows) {
            REQUIRE(owner_.emplace(row.slot, part.request).second);  // no other request has it
        }
        if (part.kind == msg::BatchKind::Prefill) {
            REQUIRE(rows.size() <= options_.prefill_rows);
            REQUIRE(job.state->take_prefill(part.base, rows));
            return;
        }
        REQUIRE(job.state->prefilled());
        REQUIRE(part.base == static_cast<Position>(job.state->slots().size()));
        REQUIRE(rows.size() <= options_.rows_max);
        rows_sent += rows.size();
        const TokenTree& tree = job.state->tree();
        for (const msg::BatchRow& row : rows) {
            REQUIRE(job.sent.insert(row.node.value).second);  // no node twice
            const TreeNode* node = tree.find(row.node);
            REQUIRE(node != nullptr);
            REQUIRE(node->slot == row.slot);
            REQUIRE(row.token == node->token);
            const bool root = row.node == tree.root().id;
            if (!root) {
                REQUIRE(job.sent.contains(row.parent));  // before it, or in an earlier batch
                REQUIRE(tree.find(NodeId{row.parent})->position + 1 == row.position);
                REQUIRE(job.state->finish_rule().after(row.token, row.position) ==
                        FinishReason::None);
            }
        }
    }

    std::optional<msg::Verdict> verdict_on(Job& job, std::span<const msg::BatchRow> rows) {
        RequestState& state = *job.verifier_state;
        REQUIRE(state.take_rows(rows));
        std::vector<msg::BatchRow> alive;
        for (const msg::BatchRow& row : rows) {
            if (state.tree().find(row.node) != nullptr) alive.push_back(row);
        }
        if (alive.empty()) return std::nullopt;
        REQUIRE(alive.front().node == state.tree().root().id);
        msg::Verdict verdict{};
        verdict.base = alive.front().position + 1;
        verdict.batch_rows = static_cast<std::uint32_t>(alive.size());
        msg::BatchRow at = alive.front();
        while (true) {
            const TokenId own = job.oracle.at(static_cast<std::size_t>(at.position) + 1);
            verdict.tokens.at(verdict.count++) = own;
            verdict.finish = state.finish_rule().after(own, at.position + 1);
            if (verdict.finish != FinishReason::None) break;
            const auto next =
                std::find_if(alive.begin(), alive.end(), [&](const msg::BatchRow& row) {
                    return row.parent == at.node.value && row.token == own;
                });
            if (next == alive.end()) break;
            verdict.nodes.at(verdict.count - 1) = next->node;
            at = *next;
        }
        return verdict;
    }

    void apply(Job& job, const msg::Verdict& verdict) {
        const std::size_t used_before = job.state->slots().size();
        REQUIRE(job.verifier_state->apply(verdict));
        const Result<TreeUpdate> step = job.state->apply(verdict);
        REQUIRE(step);
        for (const TreeNode& node : step.value().dropped) REQUIRE(owner_.erase(node.slot) == 1);
        if (job.state->over()) {
            std::erase_if(owner_,
                          [&](const auto& slot) { return slot.second == job.state->request(); });
        }
        CHECK(job.state->slots().size() == used_before + verdict.count);
        REQUIRE(job.state->slots() == job.verifier_state->slots());
        rows_wasted += step.value().dropped.size();
        const Outcome outcome = scheduler.follow(job.state->request(), step.value(), now);
        if (!job.state->over() && !outcome.open) outcomes.push_back(outcome);
    }

    DispatchOptions options_;
    std::int32_t kv_slots_;
    std::map<KvSlot, RequestId> owner_;
};

}  // namespace paceline::testing
