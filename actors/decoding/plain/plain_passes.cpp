#include "actors/decoding/plain/plain_passes.hpp"

#include <numeric>

namespace paceline {

PlainPasses::PlainPasses(Backend& backend, int rows_max, Position context)
    : backend_{&backend},
      slots_(static_cast<std::size_t>(context)),
      hidden_(static_cast<std::size_t>(rows_max) * static_cast<std::size_t>(backend.config().dim)),
      logits_(static_cast<std::size_t>(backend.config().vocab_size)) {
    std::iota(slots_.begin(), slots_.end(), KvSlot{0});
}

RunOutcome PlainPasses::run(std::span<const TokenId> text,
                            Position first,
                            std::int32_t count,
                            const Request& request,
                            const CancelToken* cancel) {
    std::vector<Row> rows(static_cast<std::size_t>(count));
    for (std::int32_t i = 0; i < count; ++i) {
        Row& row = rows[static_cast<std::size_t>(i)];
        row.position = first + i;
        row.token = text[static_cast<std::size_t>(row.position)];
        row.slot = slots_[static_cast<std::size_t>(row.position)];
        row.prefix_slots = slots_.data();
        row.prefix_count = row.position + 1;
        row.last = backend_->config().sublayers();
    }
    last_rows_ = rows.size();
    DeviceSampler* device = device_for(request);
    if (device == nullptr) {
        const auto dim = static_cast<std::size_t>(backend_->config().dim);
        return backend_->run_layers(rows, std::span{hidden_}.first(rows.size() * dim), cancel);
    }
    jobs_.assign(rows.size(), {});
    tokens_.assign(rows.size(), std::nullopt);
    const auto end = static_cast<Position>(text.size());
    if (rows.back().position + 1 == end) jobs_.back() = {&request.sampling, end};
    return device->run_and_draw(rows, {}, {.jobs = jobs_}, tokens_, cancel);
}

DeviceSampler* PlainPasses::device_for(const Request& request) const {
    DeviceSampler* device = backend_->device_sampler();
    const bool draws = device != nullptr && !request.needs_logits() && !request.scores.prompt &&
                       device->draws(request.sampling);
    return draws ? device : nullptr;
}

void PlainPasses::head(std::size_t first_row, std::size_t count, std::span<float> logits) {
    const auto dim = static_cast<std::size_t>(backend_->config().dim);
    backend_->head(HeadId::Final, std::span{hidden_}.subspan(first_row * dim, count * dim),
                   static_cast<int>(count), logits);
}

std::span<float> PlainPasses::last_logits() {
    head(last_rows_ - 1, 1, logits_);
    return logits_;
}

}  // namespace paceline
