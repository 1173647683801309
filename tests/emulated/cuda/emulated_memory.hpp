// EmulatedMemory: for tests, a registry of host memory that stands for device memory but was not
// allocated by the emulated CUDA runtime: memory that an emulated driver has mapped, of this
// process or another one.
//
// The emulated driver registers what it maps. The emulated runtime looks addresses up, so that it
// detects a plain host address where a device address is required. Not used by shipped programs.
// Threads: any.
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
    /// Whether one registered range contains all of these bytes.
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
        static auto* one = new Ranges;  // never freed: memory may be unmapped after main()
        return *one;
    }
};

}  // namespace paceline
