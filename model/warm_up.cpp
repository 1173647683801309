#include "model/warm_up.hpp"

#include <vector>

namespace paceline {
namespace {

void run_one_row(Backend& backend) {
    const KvSlot slot{0};
    Row row;
    row.slot = slot;
    row.prefix_slots = &slot;
    row.prefix_count = 1;
    row.first = 2 * backend.first_layer();
    row.last = 2 * backend.last_layer();
    const RowMemory hidden = backend.make_rows(1);
    (void)backend.run_layers({&row, 1}, hidden.rows, nullptr);  // nothing cancels it
    if (!backend.has_head(HeadId::Final)) return;
    std::vector<float> logits(static_cast<std::size_t>(backend.config().vocab_size));
    backend.head(HeadId::Final, hidden.rows, 1, logits);
}

}  // namespace

std::chrono::microseconds warm_up(Backend& backend) {
    using Clock = std::chrono::steady_clock;
    run_one_row(backend);
    const auto begin = Clock::now();
    run_one_row(backend);
    return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
}

}  // namespace paceline
