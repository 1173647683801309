#include "actors/segment/batch_intake.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <span>
#include <utility>

#include "actors/segment/segment_run.hpp"
#include "ipc/base/faults.hpp"

namespace paceline {
namespace {

/// Parts in the queue beyond which none is held.
constexpr std::size_t kHeldPartsMax = kPoolSlotsMax / 2;

}  // namespace

BatchIntake::BatchIntake(const SegmentPlan& plan, SegmentHost& host, Backend& backend)
    : host_{host},
      backend_{backend},
      previous_{plan.previous},
      hold_limit_{plan.hold_limit},
      queue_{plan.dispatch.batch_rows()} {
    host_.inbox.attach(*this);
}

/// The context, and with it the tensors that the queue names, may be gone already.
BatchIntake::~BatchIntake() {
    queue_.forget_all();
}

void BatchIntake::connect() {
    if (previous_) in_ = host_.context->tensors_from(*previous_);
}

void BatchIntake::lose() {
    in_ = nullptr;
    queue_.forget_all();
}

void BatchIntake::drop_cancelled() {
    queue_.drop_if([this](const WaitingPart& part) {
        return host_.inbox.attempts.age(part.part.request, part.part.attempt) != Age::Early;
    });
}

// ---- Batches

Status BatchIntake::handle(StageId from, const msg::Batch& batch) {
    if (from != previous_) {
        return Error{Errc::Protocol,
                     fmt::format("a batch from stage {}, which is not the segment before this one",
                                 from.value)};
    }
    if (Status checked = check_message(batch, host_.limits); !checked) return checked;
    if (queue_.size() + kBatchPartsMax > kPoolSlotsMax) {
        return Error{Errc::Protocol, "more batches wait than tensors can be on their way"};
    }
    const auto tensor = std::make_shared<TensorShare>(
        in_, PoolRef{.index = batch.tensor, .generation = batch.tensor_generation});
    std::uint32_t first_row = 0;
    for (std::uint32_t i = 0; i < batch.parts.size(); ++i) {
        Result<WaitingPart> part = split(batch, i, first_row, tensor);
        if (!part) return part.error();
        first_row += batch.parts[i].rows;
        const msg::Route route{.request = batch.parts[i].request,
                               .attempt = batch.parts[i].attempt,
                               .epoch = batch.epoch};
        if (host_.inbox.peek<msg::Batch>(from, route) == Age::Stale) {
            SegmentQueue::drop(part.value());
        } else {
            queue_.push(std::move(part).value());
        }
    }
    return {};
}

/// One part of a batch, to wait until it can run. A held one gets a copy of its hidden states: it
/// may wait for long, and would keep a tensor slot that the segment before needs. Where too many
/// wait it is not held: then every part that waits has a slot, and the segment before has no more
/// than there are.
Result<WaitingPart> BatchIntake::split(const msg::Batch& batch,
                                       std::uint32_t index,
                                       std::uint32_t first_row,
                                       const std::shared_ptr<TensorShare>& tensor) {
    WaitingPart part{.part = batch.parts[index],
                     .tensor = tensor,
                     .tensor_rows = batch.tensor_rows,
                     .cost = batch.cost};
    const auto rows = std::span{batch.rows}.subspan(first_row, part.part.rows);
    part.rows.assign(rows.begin(), rows.end());
    part.drawn_below = drawn_below(batch, first_row, part.part.rows);
    if (part.part.hold == 0) return part;
    if (queue_.size() >= kHeldPartsMax) {
        part.part.hold = 0;
        return part;
    }
    Result<std::shared_ptr<RowMemory>> copied = copy_of(part);
    if (!copied) return copied.error();
    part.copied = std::move(copied).value();
    for (std::uint32_t i = 0; i < part.part.rows; ++i) part.rows[i].tensor_row = i;
    part.tensor.reset();
    part.run_by = host_.context->now() + hold_limit_;
    return part;
}

/// The part's rows, in memory that no other part uses.
Result<std::shared_ptr<RowMemory>> BatchIntake::copy_of(const WaitingPart& part) {
    const auto dim = static_cast<std::size_t>(backend_.config().dim);
    const auto viewed = part.tensor->view(part.tensor_rows * dim);
    if (!viewed) return viewed.error();
    std::vector<RowSource> rows;
    for (const msg::BatchRow& row : part.rows) rows.push_back({viewed.value(), row.tensor_row});
    const auto unused = std::find_if(copies_.begin(), copies_.end(),
                                     [](const auto& memory) { return memory.use_count() == 1; });
    const auto memory =
        unused != copies_.end() ? *unused : copies_.emplace_back(std::make_shared<RowMemory>());
    backend_.gather(rows, backend_.rows_of(*memory, rows.size()));
    return memory;
}

// ---- The next run

SegmentQueue::Readiness BatchIntake::readiness_of(const WaitingPart& part) const {
    using Readiness = SegmentQueue::Readiness;
    const auto state = host_.requests.find(part.part.request, part.part.attempt);
    if (!state) {
        const Age age = host_.inbox.attempts.age(part.part.request, part.part.attempt);
        return age == Age::Early ? Readiness::Waits : Readiness::Stale;
    }
    if (state->over()) return Readiness::Stale;
    if (part.part.kind == msg::BatchKind::Prefill) return Readiness::Ready;
    // A part that builds on a verdict waits for it: both are under way to this segment. This is
    // also a check of the sender: without the keys of all positions before the root its tokens
    // would be wrong.
    const auto held = static_cast<Position>(state->slots().size());
    const Position root = static_cast<Position>(state->text().size()) - 1;
    const bool gap = held != root && !planted(PlantedBug::RootGapIgnored);
    if (part.part.base > held || gap) return Readiness::Waits;
    if (!part.joined) return Readiness::Joins;
    return state->wants(part.rows) ? Readiness::Ready : Readiness::Stale;
}

Result<std::vector<WaitingPart>> BatchIntake::take() {
    return queue_.take(
        {.readiness_of = [this](const WaitingPart& part) { return readiness_of(part); },
         .join =
             [this](const WaitingPart& part) {
                 return host_.requests.find(part.part.request, part.part.attempt)
                     ->take_rows(part.rows, part.drawn_below);
             }},
        host_.context->now());
}

/// Only the form of queued parts was checked when they arrived. Their sender is lost at the end of
/// the loop's round; its parts do not run until then. A first segment forms its batches itself.
Status BatchIntake::blame_sender_for(const Error& error) {
    if (!previous_) return error;
    const Status own = blame_sender(*host_.context, *previous_, error);
    if (own.ok()) queue_.forget_all();
    return own;
}

}  // namespace paceline
