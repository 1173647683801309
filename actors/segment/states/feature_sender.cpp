#include "actors/segment/states/feature_sender.hpp"

#include <algorithm>
#include <utility>

#include "actors/protocol/counters.hpp"
#include "actors/protocol/tensor_rows.hpp"
#include "ipc/base/check.hpp"

namespace paceline {

FeatureSender::FeatureSender(SegmentHost& host, Backend& backend, FeatureOptions options)
    : host_{host}, backend_{backend}, options_{std::move(options)} {
    const std::vector<int>& layers = options_.layers;
    for (const int layer : layers) {
        PACE_CHECK(layer > backend.first_layer() && layer <= backend.last_layer(),
                   "features of layers that the segment has");
    }
    for (int s = 2 * backend.first_layer(); s < 2 * backend.last_layer(); ++s) {
        const bool read = s % 2 == 1 && std::count(layers.begin(), layers.end(), s / 2 + 1) > 0;
        if (!read) others_.skip(s);
    }
}

/// Rows that keep a stack for another role, or begin further up, have no states after layers.
void FeatureSender::prepare(SegmentRun& run) {
    prompts_.clear();
    for (const RunPart& part : run.parts) {
        if (!part.prefill()) continue;
        const auto rows = run.rows_of(part);
        prompts_.push_back({.state = part.state.get(),
                            .base = rows.front().position,
                            .first = part.first,
                            .count = rows.size()});
    }
    hidden_ = run.job.hidden;
    const std::size_t width = options_.layers.size() * run.dim();
    known_.assign(run.rows.size(), width == 0);
    if (width == 0) return;
    states_.resize(run.rows.size() * width);
    for (std::size_t i = 0; i < run.rows.size(); ++i) {
        Row& row = run.job.rows[i];
        if (row.stack != nullptr || row.first != 2 * backend_.first_layer()) continue;
        row.stack = states_.data() + i * width;
        row.stack_mask = &others_;
        known_[i] = true;
    }
}

/// Adds what the draft reads of a row of the run. False: there is nothing.
bool FeatureSender::add_states(std::size_t row, std::vector<RowSource>& states) const {
    if (!known_[row]) return false;
    const std::size_t layers = options_.layers.size();
    if (layers == 0) states.push_back({hidden_, row});
    for (std::size_t layer = 0; layer < layers; ++layer)
        states.push_back({ConstHiddenRows{std::span<const float>{states_}}, row * layers + layer});
    return true;
}

void FeatureSender::send_prompts(const SegmentRun& run) {
    for (const PromptRows& prompt : prompts_) {
        const bool runs = std::any_of(run.parts.begin(), run.parts.end(), [&](const RunPart& part) {
            return part.state.get() == prompt.state && part.prefill();
        });
        if (!runs) continue;
        std::vector<RowSource> states;
        std::size_t row = 0;  // the first ones alone: a note has positions without a gap
        while (row < prompt.count && add_states(prompt.first + row, states)) ++row;
        if (row > 0) send(*prompt.state, prompt.base, states);
    }
}

void FeatureSender::send_accepted(const VerifyPart& verified, const RunPart& part) {
    if (verified.result.tokens.empty() || verified.result.finish != FinishReason::None) return;
    std::vector<RowSource> states;
    if (!add_states(part.first, states)) return;
    std::size_t row = 0;
    for (const NodeId node : verified.result.nodes) {
        // A parent is before its children.
        while (row < verified.rows.size() && verified.rows[row].node != node) ++row;
        if (row == verified.rows.size() || !add_states(part.first + row, states)) return;
    }
    send(verified.state, verified.rows.front().position, states);
}

void FeatureSender::send(const RequestState& state,
                         Position first,
                         std::span<const RowSource> states) {
    if (!state.spec().speculation.on) return;  // its draft makes no pass that would read them
    TensorProducer* tensors = host_.context->tensors_to(options_.draft);
    const auto dim = static_cast<std::size_t>(backend_.config().dim);
    const std::size_t each = std::max<std::size_t>(1, options_.layers.size());  // of a row
    const std::size_t room =
        tensors == nullptr ? 0 : tensors->slot_bytes() / (each * dim * sizeof(float));
    while (room > 0 && !states.empty()) {
        const std::size_t count = std::min(room, states.size() / each);
        const std::optional<PoolRef> slot = tensors->acquire();
        if (!slot) break;
        const std::size_t floats = count * each * dim;
        backend_.gather(states.first(count * each),
                        hidden_rows(tensors->place(*slot)).first(floats));
        tensors->publish(*slot, floats * sizeof(float));
        waiting_.push_back({.route = {.request = state.request(),
                                      .attempt = state.attempt(),
                                      .epoch = host_.context->epoch()},
                            .role = msg::TensorRole::Features,
                            .type = msg::TensorType::F32,
                            .layer = static_cast<std::uint32_t>(backend_.last_layer()) - 1,
                            .first_position = first,
                            .rows = static_cast<std::uint32_t>(count),
                            .row_elements = static_cast<std::uint32_t>(each * dim),
                            .tensor = slot->index,
                            .tensor_generation = slot->generation});
        first += static_cast<Position>(count);
        states = states.subspan(count * each);
    }
    if (!states.empty()) host_.context->count(counters::kFeaturesDropped, states.size() / each);
    flush();
}

void FeatureSender::flush() {
    while (!waiting_.empty() &&
           emit<FeatureSender>(*host_.context, options_.draft, waiting_.front()) != Push::Full) {
        waiting_.pop_front();
    }
}

}  // namespace paceline
