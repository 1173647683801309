// DraftScratch: slots of a draft's cache for a job of its own between passes (LayerChooser,
// SetSearcher), beside those of texts.
//
// Reserved when it is made, before any text is opened: the backend's KV has slots for them.
// Owns the slots and shares the pages with the model.
// Threads: the actor's loop; the job reads them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "actors/draft/draft_cache.hpp"
#include "actors/self_draft/scratch_rows.hpp"

namespace paceline {

class DraftScratch {
public:
    DraftScratch(const DraftCache& cache, std::int32_t rows)
        : pool_{cache.pool()},
          reserved_{RequestSlots::make(pool_->pages, rows).value()},
          slots_{allocate_scratch(reserved_, rows)} {}

    [[nodiscard]] std::span<const KvSlot> slots() const { return slots_; }

private:
    std::shared_ptr<DraftPool> pool_;
    RequestSlots reserved_;
    std::vector<KvSlot> slots_;
};

}  // namespace paceline
