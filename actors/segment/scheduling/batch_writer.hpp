// BatchWriter: writes the rows that were granted to requests as the parts of one batch, in the
// order in which the requests are added.
//
// Each row gets a KV slot, each node of a verify part its place in the target (TokenTree::send()),
// and what its request keeps (SchedulerEntry) follows. A candidate without a slot waits, and what
// is below it. A request without any slot is blocked until pages become free
// (RequestPages::block()); one without rows is `passed`, and comes earlier in the next batch.
// Borrows the pages. Made for one batch; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "actors/segment/scheduling/request_pages.hpp"
#include "actors/segment/scheduling/row_budget.hpp"
#include "actors/segment/scheduling/scheduler_entry.hpp"
#include "ipc/wire/messages.hpp"
#include "runtime/loop/context.hpp"

namespace paceline {

/// What the requests that share a batch have in common.
struct BatchPlace {
    std::uint64_t number = 0;  // of the batch
    std::size_t running = 0;   // requests that have pages
    Micros now{0};
};

struct WrittenBatch {
    msg::Batch batch{};
    std::vector<Outcome> resolved = {};  // the open outcomes of roots that it takes
    std::uint64_t waits_expired = 0;     // parts that start because a wait for the draft timed out
};

class BatchWriter {
public:
    BatchWriter(RequestPages& pages, const BatchPlace& place) : pages_{pages}, place_{place} {}

    void add(const SchedulableRequest& chosen);
    /// Once, at the end.
    [[nodiscard]] WrittenBatch take() { return std::move(written_); }

private:
    [[nodiscard]] std::uint32_t add_prefill(SchedulerEntry& entry, std::uint32_t rows);
    [[nodiscard]] std::uint32_t add_verify(const SchedulableRequest& chosen);

    RequestPages& pages_;
    BatchPlace place_;
    WrittenBatch written_;
};

}  // namespace paceline
