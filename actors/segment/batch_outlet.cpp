#include "actors/segment/batch_outlet.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "actors/protocol/tensor_rows.hpp"
#include "ipc/base/check.hpp"

namespace paceline {

void BatchOutlet::connect() {
    if (!next_) return;
    out_ = host_.context->tensors_to(*next_);
    const std::size_t batch_bytes = host_.limits.batch_rows * dim_ * sizeof(float);
    PACE_CHECK(out_ == nullptr || out_->slot_bytes() >= batch_bytes,
               "a tensor slot is smaller than a batch");
}

void BatchOutlet::lose() {
    out_ = nullptr;
    slot_.reset();
}

bool BatchOutlet::acquire() {
    host_.outbox->flush();
    if (!host_.outbox->empty()) return false;
    if (!next_) return true;
    if (out_ == nullptr) return false;
    if (!slot_) slot_ = out_->acquire();
    return slot_.has_value();
}

HiddenRows BatchOutlet::memory() const {
    PACE_CHECK(slot_.has_value(), "a run starts without a slot to write to");
    return hidden_rows(out_->place(*slot_));
}

void BatchOutlet::end_here(SegmentRun& run) const {
    std::vector<bool> kept(run.rows.size(), true);
    bool all = true;
    for (const RunPart& part : run.parts) {
        if (part.part.last.value == 0 || *next_ <= part.part.last) continue;
        all = false;
        std::fill_n(kept.begin() + static_cast<std::ptrdiff_t>(part.first), part.part.rows, false);
    }
    if (!all) run.keep(kept, false);
}

void BatchOutlet::forward(const SegmentRun& run) {
    const PoolRef ref = *std::exchange(slot_, std::nullopt);
    out_->publish(ref, run.job.out.size() * sizeof(float));
    msg::Batch batch{};
    batch.epoch = host_.context->epoch();
    batch.tensor = ref.index;
    batch.tensor_generation = ref.generation;
    batch.tensor_rows = static_cast<std::uint32_t>(run.job.out.size() / dim_);
    batch.cost = run.cost;
    for (const RunPart& part : run.parts) batch.parts.push_back(part.part);
    batch.rows = run.rows;
    run.add_draws(batch);
    host_.outbox->send<BatchOutlet>(*next_, batch);
}

}  // namespace paceline
