// EmulatedMemory: host memory that plays the part of a device's in tests, where the emulated CUDA
// runtime did not allocate it itself: what an emulated driver has mapped, of this process or another.
//
// Whoever maps says so here; the emulated runtime asks, so that a plain host address in a device's
// place still shows. Programs that ship never come here. Threads: any.
#pragma once

#include <cstddef>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>

namespace paceline {

class EmulatedMemory {
public:
    static void add(const void* begin, std::size_t bytes) {
        const std::scoped_lock lock{ranges().mutex};
        ranges().bytes_at[static_cast<const std::byte*>(begin)] = bytes;
    }
    static void remove(const void* begin) {
        const std::scoped_lock lock{ranges().mutex};
        ranges().bytes_at.erase(static_cast<const std::byte*>(begin));
    }
    /// Whether one range has all of these bytes.
    [[nodiscard]] static bool contains(const void* address, std::size_t bytes) {
        const std::scoped_lock lock{ranges().mutex};
        const auto* at = static_cast<const std::byte*>(address);
        const auto after = ranges().bytes_at.upper_bound(at);
        if (after == ranges().bytes_at.begin()) return false;
        const auto& [begin, size] = *std::prev(after);
        const auto offset = static_cast<std::size_t>(at - begin);
        return offset < size && bytes <= size - offset;
    }

private:
    struct Ranges {
        std::mutex mutex;
        std::map<const std::byte*, std::size_t, std::less<>> bytes_at;
    };
    static Ranges& ranges() {
        static auto* one = new Ranges;  // never destroyed: memory may be unmapped after main()
        return *one;
    }
};

}  // namespace paceline
