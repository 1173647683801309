// KvPages: the pages of a KV cache, free or taken.
//
// Reserved pages are free ones that only their reserver may take.
// Pure; not thread-safe. Invariant: a page is taken by one at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "ipc/base/result.hpp"

namespace paceline {

inline constexpr std::int32_t kNoPage = -1;

class KvPages {
public:
    /// `kv_slots` of the cache; an incomplete last page is not used.
    explicit KvPages(std::int32_t kv_slots);

    /// Sets `pages` aside. Errors: OutOfMemory with both numbers.
    Status reserve(std::int32_t pages);
    void unreserve(std::int32_t pages);

    /// A page out of what was reserved before.
    [[nodiscard]] std::int32_t take_reserved();
    /// An unreserved page, or kNoPage.
    [[nodiscard]] std::int32_t take();
    void give(std::int32_t page);

    [[nodiscard]] std::int32_t count() const { return count_; }
    [[nodiscard]] std::int32_t free_pages() const {
        return static_cast<std::int32_t>(free_.size());
    }
    /// Free and not reserved.
    [[nodiscard]] std::int32_t unreserved_pages() const { return free_pages() - reserved_; }
    /// Changes whenever pages become free: a caller that found none need not ask again before.
    [[nodiscard]] std::uint64_t releases() const { return releases_; }
    /// A page that is taken could be given back now on request.
    void note_reclaimable() { ++releases_; }

private:
    std::int32_t count_;
    std::int32_t reserved_ = 0;       // of the free pages, reserved
    std::vector<std::int32_t> free_;  // a stack
    std::vector<bool> taken_;         // by page: guards against giving one back twice
    std::uint64_t releases_ = 0;
};

}  // namespace paceline
