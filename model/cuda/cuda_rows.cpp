#include "model/cuda/cuda_rows.hpp"

#include <algorithm>
#include <cstring>
#include <fmt/core.h>

namespace paceline {
namespace {

/// How many of `rows`, from the first on, satisfy `alike` with the one before them.
template <class Alike>
std::size_t stretch_of(std::span<const RowSource> rows, Alike alike) {
    std::size_t count = 1;
    while (count < rows.size() && alike(rows[count - 1], rows[count])) ++count;
    return count;
}

bool same_place(const RowSource& a, const RowSource& b) {
    return a.of.place() == b.of.place() && a.is_gap() == b.is_gap();
}

bool neighbours(const RowSource& a, const RowSource& b) {
    return same_place(a, b) && a.of.data() == b.of.data() && a.row + 1 == b.row;
}

}  // namespace

// ---- A batch's

void CudaRows::give(ConstHiddenRows hidden) {
    const std::size_t bytes = hidden.size() * sizeof(float);
    if (!hidden.on_device()) {
        std::memcpy(pinned_.data(), hidden.data(), bytes);
        for (const std::unique_ptr<CudaRank>& rank : group_.ranks())
            rank->stream.to_device(rank->at.hidden, pinned_.data(), bytes);
        return;
    }
    // Foreign memory is mapped for the first device alone.
    group_.first().stream.on_device(group_.first().at.hidden, hidden.data(), bytes);
    group_.fork();
    for (const std::unique_ptr<CudaRank>& rank : group_.others())
        rank->stream.on_device(rank->at.hidden, group_.first().at.hidden, bytes);
}

/// Puts the batch's hidden states into the stream. Those that go to the host come by way of
/// take_out(), once the stream was waited for.
void CudaRows::send_out(HiddenRows out) {
    const std::size_t bytes = out.size() * sizeof(float);
    if (bytes == 0) return;
    if (out.on_device())
        return group_.first().stream.on_device(out.data(), group_.first().at.hidden, bytes);
    group_.first().stream.to_host(pinned_.data(), group_.first().at.hidden, bytes);
}

void CudaRows::take_out(HiddenRows out) const {
    if (!out.empty() && !out.on_device())
        std::memcpy(out.data(), pinned_.data(), out.size() * sizeof(float));
}

// ---- Rows that lie anywhere

void CudaRows::gather(std::span<const RowSource> rows, HiddenRows to) {
    const std::size_t dim = dim_;
    const std::size_t batch = rows_max_;
    for (std::size_t first = 0; first < rows.size(); first += batch) {
        const std::size_t count = std::min(batch, rows.size() - first);
        gather_batch(rows.subspan(first, count), to.subspan(first * dim, count * dim));
    }
}

/// As many as pinned memory has room for: row i goes by its place i there.
void CudaRows::gather_batch(std::span<const RowSource> rows, HiddenRows to) {
    const std::size_t dim = dim_;
    bool waits = false;
    for (std::size_t first = 0; first < rows.size();) {
        const std::size_t count = stretch_of(rows.subspan(first), same_place);
        if (rows[first].is_gap()) {
            first += count;
            continue;
        }
        if (to.on_device() || rows[first].of.on_device()) {
            put_in_stream(rows.subspan(first, count), first, to);
            waits = true;
        } else {
            for (std::size_t i = first; i < first + count; ++i)
                std::memcpy(to.data() + i * dim, rows[i].of.data() + rows[i].row * dim,
                            dim * sizeof(float));
        }
        first += count;
    }
    if (waits) group_.first().stream.finish();
    if (to.on_device()) return;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        if (rows[i].of.on_device())
            std::memcpy(to.data() + i * dim, pinned_.as<float>() + i * dim, dim * sizeof(float));
    }
}

/// Rows of one place that do not go from host to host; the first of them is row `first` of `to`.
void CudaRows::put_in_stream(std::span<const RowSource> rows, std::size_t first, HiddenRows to) {
    const std::size_t dim = dim_;
    float* pinned = pinned_.as<float>() + first * dim;
    if (!rows.front().of.on_device()) {
        for (std::size_t i = 0; i < rows.size(); ++i)
            std::memcpy(pinned + i * dim, rows[i].of.data() + rows[i].row * dim,
                        dim * sizeof(float));
        return group_.first().stream.to_device(to.data() + first * dim, pinned,
                                               rows.size() * dim * sizeof(float));
    }
    for (std::size_t done = 0; done < rows.size();) {
        const std::size_t count = stretch_of(rows.subspan(done), neighbours);
        const float* from = rows[done].of.data() + rows[done].row * dim;
        const std::size_t bytes = count * dim * sizeof(float);
        if (to.on_device()) {
            group_.first().stream.on_device(to.data() + (first + done) * dim, from, bytes);
        } else {
            group_.first().stream.to_host(pinned + done * dim, from, bytes);
        }
        done += count;
    }
}

void CudaRows::copy(ConstHiddenRows from, HiddenRows to) {
    if (from.on_device() && to.on_device()) {
        group_.first().stream.on_device(to.data(), from.data(), from.size() * sizeof(float));
        return group_.first().stream.finish();
    }
    if (!from.on_device() && !to.on_device()) {
        std::copy_n(from.data(), from.size(), to.data());
        return;
    }
    const std::size_t batch = rows_max_ * dim_;
    for (std::size_t first = 0; first < from.size(); first += batch) {
        const std::size_t count = std::min(batch, from.size() - first);
        const std::size_t bytes = count * sizeof(float);
        if (to.on_device()) {
            std::memcpy(pinned_.data(), from.data() + first, bytes);
            group_.first().stream.to_device(to.data() + first, pinned_.data(), bytes);
            group_.first().stream.finish();
        } else {
            group_.first().stream.to_host(pinned_.data(), from.data() + first, bytes);
            group_.first().stream.finish();
            std::memcpy(to.data() + first, pinned_.data(), bytes);
        }
    }
}

RowMemory CudaRows::make_rows(std::size_t rows) {
    const std::size_t floats = rows * dim_;
    const std::size_t all = kKeptBatches * rows_max_;
    if (rows <= all - kept_rows_) {
        float* at = group_.first().at.kept + kept_rows_ * dim_;
        kept_rows_ += rows;
        return {.rows = {at, floats, MemoryPlace::Device}, .owner = {}};
    }
    auto memory = std::make_shared<cuda::DeviceMemory>();
    if (!cuda::DeviceMemory::allocate(floats * sizeof(float), *memory))
        throw cuda::DeviceError(
            fmt::format("the device has no {} bytes for {} hidden states that a stage keeps there",
                        floats * sizeof(float), rows));
    return {.rows = {memory->as<float>(), floats, MemoryPlace::Device}, .owner = memory};
}

}  // namespace paceline
