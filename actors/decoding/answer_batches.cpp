#include "actors/decoding/answer_batches.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

#include "ipc/base/check.hpp"
#include "model/weights/tensor.hpp"

namespace paceline {
namespace {

constexpr float kHalfMax = 65504.0f;

FinishRule rule_of(const AnswerTask& task, const BatchParams& params) {
    FinishRule rule = params.request.finish_rule();
    rule.answer_begin = static_cast<Position>(task.tokens.size());
    return rule;
}

/// Positions that a request's rows may take.
Position positions_of(const AnswerTask& task, const BatchParams& params) {
    const auto begin = static_cast<Position>(task.tokens.size());
    return begin + rule_of(task, params).room_at(begin);
}

}  // namespace

std::uint16_t saturated_half(float value) {
    return float_to_half(std::clamp(value, -kHalfMax, kHalfMax));
}

std::int32_t kv_slots_for(std::span<const AnswerTask> tasks, const BatchParams& params) {
    std::vector<std::int32_t> pages;
    pages.reserve(tasks.size());
    for (const AnswerTask& task : tasks) pages.push_back(pages_for(positions_of(task, params)));
    std::sort(pages.begin(), pages.end(), std::greater<>{});
    std::int32_t total = 0;
    for (std::size_t i = 0; i < pages.size() && i < static_cast<std::size_t>(params.max_running);
         ++i)
        total += pages[i];
    return total * kKvPageSlots;
}

AnswerBatches::AnswerBatches(Backend& backend, BatchParams params)
    : backend_{&backend},
      params_{std::move(params)},
      winner_is_drawn_{params_.request.sampling.greedy() &&
                       !params_.request.sampling.has_penalties() &&
                       params_.request.sampling.logit_bias.empty()},
      pages_{backend.kv_slots()} {
    const ModelConfig& config = backend.config();
    PACE_CHECK(backend.first_layer() == 0 && backend.last_layer() == config.layers,
               "answers need all layers");
    PACE_CHECK(params_.max_running >= 1 && params_.batch_rows >= params_.max_running,
               "every request has a row in a batch");
    const auto dim = static_cast<std::size_t>(config.dim);
    const auto max_running = static_cast<std::size_t>(params_.max_running);
    hidden_.resize(static_cast<std::size_t>(params_.batch_rows) * dim);
    end_hidden_.resize(max_running * dim);
    logits_.resize(max_running * static_cast<std::size_t>(config.vocab_size));
}

Status AnswerBatches::run(std::span<const AnswerTask> tasks,
                          const Done& done,
                          const OnBatch& on_batch,
                          const CancelToken& cancel) {
    while (true) {
        if (Status s = seat_next(tasks); !s) return s;
        if (running_.empty()) return {};
        plan_batch();
        if (run_layers(cancel) == RunOutcome::Cancelled || cancel.cancelled()) {
            running_.clear();
            return Error{Errc::Cancelled, "stopped before all answers were made"};
        }
        if (Status s = draw(); !s) return s;
        on_batch(static_cast<int>(ends_.size()), static_cast<int>(rows_.size()));
        if (Status s = clear_seats(done); !s) return s;
    }
}

Status AnswerBatches::seat_next(std::span<const AnswerTask>& waiting) {
    while (!waiting.empty() && running_.size() < static_cast<std::size_t>(params_.max_running)) {
        const AnswerTask& task = waiting.front();
        Result<RequestSlots> slots = RequestSlots::make(pages_, positions_of(task, params_));
        if (!slots) {
            if (running_.empty()) return slots.error();
            return {};  // the pages of the next answer that ends
        }
        TrainingSample answer{.task = task, .tokens = {task.tokens.begin(), task.tokens.end()}};
        answer.hidden.resize(params_.hidden.size());
        SamplingParams sampling = params_.request.sampling;
        sampling.seed += static_cast<std::uint64_t>(task.index);
        running_.push_back(
            std::make_unique<RunningAnswer>(RunningAnswer{.answer = std::move(answer),
                                                          .slots = std::move(slots).value(),
                                                          .sampling = std::move(sampling),
                                                          .rule = rule_of(task, params_)}));
        waiting = waiting.subspan(1);
    }
    return {};
}

void AnswerBatches::plan_batch() {
    rows_.clear();
    batch_.clear();
    ends_.clear();
    for (const auto& running : running_) {
        if (running->unfed() == 1) add_rows(*running, 1);
    }
    // The one that joined first answers first, and makes the next batches fuller.
    for (const auto& running : running_) {
        const auto room =
            static_cast<Position>(params_.batch_rows) - static_cast<Position>(rows_.size());
        add_rows(*running, std::min(room, running->unfed()));
    }
}

void AnswerBatches::add_rows(RunningAnswer& running, Position count) {
    const auto dim = static_cast<std::size_t>(backend_->config().dim);
    for (Position i = 0; i < count; ++i) {
        const Position position = running.fed++;
        Result<KvSlot> slot = running.slots.allocate(position);
        PACE_CHECK(slot.ok(), "a request has reserved its slots");
        running.slots.commit(slot.value());
        Row row;
        row.token = running.answer.tokens[static_cast<std::size_t>(position)];
        row.position = position;
        row.slot = slot.value();
        row.prefix_slots = running.slots.committed().data();  // reserved: it stays where it is
        row.prefix_count = position + 1;
        rows_.push_back(row);
        batch_.push_back({&running, position});
    }
    for (auto& hidden : running.answer.hidden)
        hidden.resize(static_cast<std::size_t>(running.fed) * dim);
    if (count > 0 && running.unfed() == 0) ends_.push_back(rows_.size() - 1);
}

RunOutcome AnswerBatches::run_layers(const CancelToken& cancel) {
    const auto dim = static_cast<std::size_t>(backend_->config().dim);
    const std::span<float> hidden = std::span{hidden_}.first(rows_.size() * dim);
    const int layers = backend_->config().layers;
    int begin = 0;
    const auto run_to = [&](int end) {
        for (Row& row : rows_) {
            row.first = 2 * begin;
            row.last = 2 * end;
        }
        begin = end;
        return backend_->run_layers(rows_, hidden, &cancel);
    };
    for (std::size_t i = 0; i < params_.hidden.size(); ++i) {
        if (run_to(params_.hidden[i]) == RunOutcome::Cancelled) return RunOutcome::Cancelled;
        keep_residuals(i);
    }
    return begin == layers ? RunOutcome::Done : run_to(layers);
}

void AnswerBatches::keep_residuals(std::size_t layer_index) {
    const auto dim = static_cast<std::size_t>(backend_->config().dim);
    for (std::size_t row = 0; row < batch_.size(); ++row) {
        std::vector<std::uint16_t>& kept = batch_[row].running->answer.hidden[layer_index];
        const auto at = static_cast<std::size_t>(batch_[row].position) * dim;
        for (std::size_t i = 0; i < dim; ++i) kept[at + i] = saturated_half(hidden_[row * dim + i]);
    }
}

Status AnswerBatches::draw() {
    if (ends_.empty()) return {};
    const auto dim = static_cast<std::size_t>(backend_->config().dim);
    const auto vocab = static_cast<std::size_t>(backend_->config().vocab_size);
    for (std::size_t i = 0; i < ends_.size(); ++i)
        std::copy_n(hidden_.data() + ends_[i] * dim, dim, end_hidden_.data() + i * dim);
    backend_->head(HeadId::Final, std::span{end_hidden_}.first(ends_.size() * dim),
                   static_cast<int>(ends_.size()), std::span{logits_}.first(ends_.size() * vocab));
    for (std::size_t i = 0; i < ends_.size(); ++i) {
        RunningAnswer& running = *batch_[ends_[i]].running;
        const std::optional<TokenId> token =
            draw_for(running, std::span{logits_}.subspan(i * vocab, vocab));
        if (!token) {
            return Error{Errc::BadFile,
                         fmt::format("no token can be drawn for prompt {}: no logit is a finite "
                                     "number; the model's weights may be damaged",
                                     running.answer.task.prompt)};
        }
        const auto position = static_cast<Position>(running.answer.tokens.size());
        running.answer.tokens.push_back(*token);
        running.answer.finish = running.rule.after(*token, position);
    }
    return {};
}

std::optional<TokenId> AnswerBatches::draw_for(RunningAnswer& running, std::span<float> logits) {
    const std::vector<TokenId>& text = running.answer.tokens;
    const auto position = static_cast<Position>(text.size());
    if (params_.top > 0) {
        // Before sample(), which changes the logits of tokens that have a penalty.
        const std::vector<Candidate> best =
            candidates(logits, position, {}, SamplingParams{}, params_.top, scratch_);
        keep_candidates(running, best);
        if (winner_is_drawn_) {
            if (best.empty()) return {};
            return best.front().token;
        }
    }
    return sample(logits, position, {.committed = text, .path = {}}, running.sampling, scratch_);
}

void AnswerBatches::keep_candidates(RunningAnswer& running, std::span<const Candidate> best) {
    const auto top = static_cast<std::size_t>(params_.top);
    const std::size_t begin = (running.answer.tokens.size() - 1) * top;
    running.answer.top_ids.resize(begin + top, -1);
    running.answer.top_logprob.resize(begin + top, 0);
    for (std::size_t i = 0; i < best.size(); ++i) {
        running.answer.top_ids[begin + i] = best[i].token;
        running.answer.top_logprob[begin + i] = saturated_half(best[i].log_prob);
    }
}

Status AnswerBatches::clear_seats(const Done& done) {
    const auto dim = static_cast<std::size_t>(backend_->config().dim);
    const auto top = static_cast<std::size_t>(params_.top);
    for (const auto& running : running_) {
        if (!running->over()) continue;
        TrainingSample& answer = running->answer;
        answer.top_ids.resize(answer.tokens.size() * top, -1);
        answer.top_logprob.resize(answer.tokens.size() * top, 0);
        for (auto& hidden : answer.hidden) {
            hidden.resize(answer.tokens.size() * dim, 0);
            hidden.shrink_to_fit();  // it waits for the rest of its shard
        }
        if (Status s = done(std::move(answer)); !s) return s;
    }
    std::erase_if(running_, [](const auto& running) { return running->over(); });
    return {};
}

}  // namespace paceline
