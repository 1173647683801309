// Launches of sample.hpp, and the scratch they work in.
//
//     fold -> weigh -> cut -> race -> finish                    of rows x chunks, except cut and
//     fold -> weigh -> cut -> race -> list rivals -> finish     finish, which have a block per row
//
// Each kernel waits for the one before as its first deed, so they may be launched overlapping.
#include <string>

#include "model/kernels/cuda/launch.cuh"
#include "model/kernels/cuda/sampling/sample.hpp"
#include "model/kernels/cuda/sampling/sample_candidates.cuh"
#include "model/kernels/cuda/sampling/sample_cut.cuh"
#include "model/kernels/cuda/sampling/sample_race.cuh"

namespace paceline::cuda {

using namespace draw;

namespace {

int chunks_of(int vocab) {
    return (vocab + kChunkTokens - 1) / kChunkTokens;
}

/// Gives out pieces of a scratch, or counts them where there is none.
class Pieces {
public:
    explicit Pieces(std::byte* from) : from_{from} {}
    template <class T>
    T* take(std::size_t count) {
        T* const piece = from_ == nullptr ? nullptr : reinterpret_cast<T*>(from_ + bytes_);
        bytes_ += (sizeof(T) * count + 15) / 16 * 16;
        return piece;
    }
    [[nodiscard]] std::size_t bytes() const { return bytes_; }

private:
    std::byte* from_;
    std::size_t bytes_ = 0;
};

enum class Purpose { Draw, Candidates };

/// Lays out the scratch; returns its bytes.
std::size_t lay_out(DrawJob& job, int rows, int vocab, std::byte* scratch, Purpose purpose) {
    job.chunks = chunks_of(vocab);
    const std::size_t chunks = static_cast<std::size_t>(job.chunks) * static_cast<unsigned>(rows);
    Pieces pieces{scratch};
    job.group_max = pieces.take<float>(chunks * kChunkThreads);
    job.tile_best = pieces.take<Key>(chunks * kChunkTiles);
    job.chunk_top = pieces.take<Key>(chunks);
    job.chunk_best = pieces.take<Key>(chunks);
    job.bin_mass = pieces.take<std::uint64_t>(chunks * kBins);
    job.bin_count = pieces.take<std::uint32_t>(chunks * kBins);
    job.cut = pieces.take<Key>(static_cast<std::size_t>(rows));
    if (purpose == Purpose::Candidates) {
        job.rivals = pieces.take<Key>(chunks * kChunkTokens);
        job.rival_count = pieces.take<std::int32_t>(chunks);
        job.group_sum = pieces.take<float>(chunks * kChunkThreads);
    }
    return pieces.bytes();
}

DrawJob make_job(
    const DrawInput& input, DrawNeeds needs, std::byte* scratch, int candidates, Purpose purpose) {
    const bool sound = input.vocab >= 1 && input.vocab <= kVocabMax && input.row_count >= 0 &&
                       input.row_count <= 65535 && input.list.count <= input.vocab &&
                       (input.list.tokens == nullptr) == (input.list.count == 0) &&
                       candidates >= 1 && candidates <= kCandidatesMax;
    if (!sound) {
        throw DeviceError("tokens of " + std::to_string(input.row_count) + " rows of " +
                          std::to_string(input.vocab) + " tokens, " +
                          std::to_string(input.list.count) + " of them listed, and " +
                          std::to_string(candidates) + " candidates cannot be drawn");
    }
    DrawJob job{};
    job.input = input;
    job.candidates = candidates;
    lay_out(job, input.row_count, input.vocab, scratch, purpose);
    if (!needs.noise || !needs.cuts) job.cut = nullptr;
    return job;
}

LaunchShape shape_of(int blocks_x, int blocks_y, int threads, std::size_t shared_bytes) {
    LaunchShape shape;
    shape.blocks_x = blocks_x;
    shape.blocks_y = blocks_y;
    shape.threads = threads;
    shape.shared_bytes = shared_bytes;
    shape.overlaps_previous = true;
    return shape;
}

/// Everything up to the best of each chunk.
void launch_races(Stream& stream, const DrawJob& job, DrawNeeds needs) {
    const int rows = job.input.row_count;
    const std::size_t warps = sizeof(Key) * kChunkThreads / 32;
    const LaunchShape chunks = shape_of(job.chunks, rows, kChunkThreads, warps);
    launch(stream, chunks, fold_rows, job);
    if (job.cut != nullptr) {
        launch(stream, shape_of(job.chunks, rows, kChunkThreads, kWeighShared), weigh_rows, job);
        launch(stream, shape_of(rows, 1, kCutThreads, sizeof(CutShared)), cut_rows, job);
    }
    if (needs.noise) launch(stream, chunks, race_rows, job);
}

}  // namespace

DrawNeeds needs_of(const DrawRow* rows, int row_count) {
    DrawNeeds needs{false, false};
    for (int i = 0; i < row_count; ++i) {
        needs.noise = needs.noise || !rows[i].greedy();
        needs.cuts = needs.cuts || rows[i].has_cut();
    }
    return needs;
}

std::size_t draw_scratch_bytes(int row_count, int vocab) {
    DrawJob job{};
    return lay_out(job, row_count, vocab, nullptr, Purpose::Draw);
}

std::size_t candidate_scratch_bytes(int row_count, int vocab) {
    DrawJob job{};
    return lay_out(job, row_count, vocab, nullptr, Purpose::Candidates);
}

void launch_draw(Stream& stream,
                 const DrawInput& input,
                 DrawNeeds needs,
                 std::byte* scratch,
                 std::int32_t* tokens) {
    DrawJob job = make_job(input, needs, scratch, 1, Purpose::Draw);
    if (input.row_count == 0) return;
    job.tokens = tokens;
    launch_races(stream, job, needs);
    launch(stream, shape_of(input.row_count, 1, 32, sizeof(Key)), finish_draw, job);
}

void launch_candidates(Stream& stream,
                       const DrawInput& input,
                       DrawNeeds needs,
                       int count,
                       std::byte* scratch,
                       CandidateList* lists) {
    DrawJob job = make_job(input, needs, scratch, count, Purpose::Candidates);
    if (input.row_count == 0) return;
    job.lists = lists;
    launch_races(stream, job, needs);
    launch(stream, shape_of(job.chunks, input.row_count, kChunkThreads, sizeof(RivalShared)),
           list_rivals, job);
    launch(stream, shape_of(input.row_count, 1, kFinishThreads, sizeof(FinishShared)),
           finish_candidates, job);
}

}  // namespace paceline::cuda
