// PlacedSpan: a span in host memory or in the memory of a backend's device.
//
//     HiddenRows     hidden states [rows, dim]          ConstHiddenRows   the same to read from
//     KvBytes        keys and values of one slot        ConstKvBytes      the same to read from
//
// A host's span, vector or array converts implicitly. A span on a device can only be passed on:
// only a backend of that device (or of one with peer access) may dereference it, and host() aborts.
// Owns nothing; RowMemory does.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>

#include "ipc/base/check.hpp"
#include "ipc/base/memory_place.hpp"

namespace paceline {

template <class T>
class PlacedSpan {
public:
    constexpr PlacedSpan() = default;
    constexpr PlacedSpan(T* data, std::size_t size, MemoryPlace place)
        : data_{data}, size_{size}, place_{place} {}
    template <class Range>
    requires std::convertible_to<Range, std::span<T>>
    // NOLINTNEXTLINE(google-explicit-constructor,bugprone-forwarding-reference-overload): bounded
    constexpr PlacedSpan(Range&& range) {
        const std::span<T> host = range;
        data_ = host.data();
        size_ = host.size();
    }
    template <class U>
    requires(std::is_const_v<T>&& std::same_as<U, std::remove_const_t<T>>)
        // NOLINTNEXTLINE(google-explicit-constructor): as a span becomes one of constants
        constexpr PlacedSpan(const PlacedSpan<U>& other)
        : data_{other.data()}, size_{other.size()}, place_{other.place()} {}

    [[nodiscard]] constexpr T* data() const { return data_; }
    [[nodiscard]] constexpr std::size_t size() const { return size_; }
    [[nodiscard]] constexpr bool empty() const { return size_ == 0; }
    [[nodiscard]] constexpr MemoryPlace place() const { return place_; }
    [[nodiscard]] constexpr bool on_device() const { return place_ == MemoryPlace::Device; }

    /// Elements [first, first + count). Precondition: they are there.
    [[nodiscard]] constexpr PlacedSpan subspan(std::size_t first, std::size_t count) const {
        PACE_CHECK(first <= size_ && count <= size_ - first, "a part of a span that is not there");
        return {data_ + first, count, place_};
    }
    [[nodiscard]] constexpr PlacedSpan first(std::size_t count) const { return subspan(0, count); }
    /// Precondition: it lies there.
    [[nodiscard]] constexpr std::span<T> host() const {
        PACE_CHECK(!on_device(), "memory of a device is read on the host");
        return {data_, size_};
    }

private:
    T* data_ = nullptr;
    std::size_t size_ = 0;
    MemoryPlace place_ = MemoryPlace::Host;
};

using HiddenRows = PlacedSpan<float>;
using ConstHiddenRows = PlacedSpan<const float>;
using KvBytes = PlacedSpan<std::byte>;
using ConstKvBytes = PlacedSpan<const std::byte>;

/// One row of hidden states, by what it lies in. The default is a gap: no row.
struct RowSource {
    ConstHiddenRows of = {};
    std::size_t row = 0;

    [[nodiscard]] bool is_gap() const { return of.empty(); }
};

/// Hidden states that a caller keeps where a backend computes (Backend::make_rows).
struct RowMemory {
    HiddenRows rows = {};
    std::shared_ptr<void> owner = {};
};

}  // namespace paceline
