#include "actors/segment/states/residual_tap.hpp"

#include <algorithm>

#include "actors/protocol/tensor_rows.hpp"

namespace paceline {

ResidualTap::ResidualTap(SegmentHost& host, Backend& backend, TapOptions options)
    : host_{host}, backend_{backend}, options_{options} {}

void ResidualTap::prepare(SegmentRun& run) {
    const auto due = std::find_if(run.parts.begin(), run.parts.end(), [&](const RunPart& part) {
        return !part.prefill() && part.part.batch.value % options_.interval == 0;
    });
    if (due == run.parts.end()) return;
    request_ = due->part.request;
    attempt_ = due->state->attempt();
    batch_ = due->part.batch;
    kept_.clear();
    const std::size_t count = std::min<std::size_t>(due->part.rows, kRows);
    const auto sublayers =
        static_cast<std::size_t>(2 * (backend_.last_layer() - backend_.first_layer()));
    residuals_.resize(count * sublayers * run.dim());
    for (std::size_t i = 0; i < count; ++i) {
        const msg::BatchRow& named = run.rows[due->first + i];
        Row& row = run.job.rows[due->first + i];
        // A row that begins further up has no residuals of the layers before: it is not kept.
        if (row.stack != nullptr || row.first != 2 * backend_.first_layer()) continue;
        row.stack = residuals_.data() + kept_.size() * sublayers * run.dim();
        kept_.push_back({.node = named.node, .position = named.position});
    }
}

void ResidualTap::follow(const msg::Verdict& verdict) {
    flush();
    const msg::Route& route = verdict.route;
    if (kept_.empty() || route.request != request_ || route.attempt != attempt_ ||
        verdict.batch != batch_ || verdict.count == 0) {
        return;
    }
    const std::uint32_t accepted = verdict.count - 1;
    const Position position = verdict.base - 1 + static_cast<Position>(accepted);
    const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& row) {
        return row.position == position &&
               (accepted == 0 || row.node == verdict.nodes[accepted - 1]);
    });
    if (found != kept_.end()) send(verdict, static_cast<std::size_t>(found - kept_.begin()));
    kept_.clear();
}

void ResidualTap::send(const msg::Verdict& verdict, std::size_t row) {
    TensorProducer* tensors = host_.context->tensors_to(options_.draft);
    const auto dim = static_cast<std::size_t>(backend_.config().dim);
    const auto layers = static_cast<std::size_t>(backend_.last_layer() - backend_.first_layer());
    const std::size_t floats = layers * dim;
    if (waiting_ || tensors == nullptr || tensors->slot_bytes() < floats * sizeof(float)) return;
    const std::optional<PoolRef> slot = tensors->acquire();
    if (!slot) return;
    const ConstHiddenRows all{residuals_};
    std::vector<RowSource> behind_layers;
    for (std::size_t layer = 0; layer < layers; ++layer)
        behind_layers.push_back({all, (row * layers + layer) * 2 + 1});
    backend_.gather(behind_layers, hidden_rows(tensors->place(*slot)).first(floats));
    tensors->publish(*slot, floats * sizeof(float));
    waiting_ =
        msg::TensorNote{.route = {.request = verdict.route.request,
                                  .attempt = verdict.route.attempt,
                                  .epoch = host_.context->epoch()},
                        .role = msg::TensorRole::Tap,
                        .type = msg::TensorType::F32,
                        .layer = static_cast<std::uint32_t>(backend_.first_layer()),
                        .first_position = verdict.base - 2 + static_cast<Position>(verdict.count),
                        .rows = 1,
                        .row_elements = static_cast<std::uint32_t>(floats),
                        .tensor = slot->index,
                        .tensor_generation = slot->generation};
    flush();
}

void ResidualTap::flush() {
    if (waiting_ && emit<ResidualTap>(*host_.context, options_.draft, *waiting_) != Push::Full) {
        waiting_.reset();
    }
}

}  // namespace paceline
