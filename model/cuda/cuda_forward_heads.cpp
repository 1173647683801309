// The heads of CudaForward: hidden states to logits, and to what is drawn from them.
#include <algorithm>
#include <cstring>

#include "model/cuda/cuda_forward.hpp"
#include "model/kernels/cuda/sample_rows.hpp"

namespace paceline {

using cuda::DeviceMatrix;
using cuda::GemmArgs;
using cuda::padded_inputs;

/// Logits of `rows` hidden states, left on the device.
void CudaForward::launch_head(const CudaHead& head, const float* hidden, int rows) {
    const std::size_t bytes =
        static_cast<std::size_t>(rows) * static_cast<std::size_t>(config_.dim) * sizeof(float);
    std::memcpy(pinned_.data(), hidden, bytes);
    stream_.to_device(at_.hidden, pinned_.data(), bytes);
    // Rows alone: no keys, no positions that matter.
    std::vector<Row> bare(static_cast<std::size_t>(rows));
    const KvSlot slot = 0;
    for (Row& row : bare) {
        row.prefix_slots = &slot;
        row.prefix_count = 1;
    }
    send(bare, all_of(bare.size()), 1, 1);
    const int stride = padded_inputs(config_.dim);
    const DeviceMatrix& first = head.turns ? head.transform : head.output;
    const bool norm_now = !head.turns || head.norm_first;
    cuda::launch_ready(stream_,
                       {at_.hidden, tables_.row_index(), tables_.rows(), config_.dim,
                        input_for(norm_now ? head.norm : nullptr, first)},
                       rows_now_);
    GemmArgs output = product(head.output, at_.input, stride, norm_now);
    if (head.turns) {
        GemmArgs turn = product(head.transform, at_.input, stride, norm_now);
        turn.finish.kind = cuda::FinishKind::Input;
        // Squares that this product itself reads as its norm are not written meanwhile.
        turn.finish.next = {norm_now ? nullptr : head.norm, at_.turned,
                            norm_now ? nullptr : at_.squares, stride,
                            cuda::takes_floats(head.output)};
        cuda::launch_gemm(stream_, turn, rows_now_);
        output = product(head.output, at_.turned, stride, !norm_now);
    }
    output.finish.out = at_.logits;
    output.finish.out_stride = head.output.outputs;
    cuda::launch_gemm(stream_, output, rows_now_);
}

void CudaForward::head(const CudaHead& head, const float* hidden, int rows, float* logits) {
    launch_head(head, hidden, rows);
    const std::size_t count =
        static_cast<std::size_t>(rows) * static_cast<std::size_t>(head.output.outputs);
    stream_.to_host(pinned_.data(), at_.logits, count * sizeof(float));
    stream_.finish();
    std::memcpy(logits, pinned_.data(), count * sizeof(float));
}

/// The jobs to the device, and the logits that they are drawn from. `input` and `needs` are what
/// the draw is launched with.
cuda::DrawInput CudaForward::launch_jobs(const CudaHead& head,
                                         const float* hidden,
                                         std::span<const DrawJob> jobs,
                                         cuda::DrawNeeds& needs) {
    const int rows = static_cast<int>(jobs.size());
    auto* draws = draw_pinned_.as<cuda::DrawRow>();
    for (int r = 0; r < rows; ++r) {
        const DrawJob& job = jobs[static_cast<std::size_t>(r)];
        draws[r] = cuda::draw_row(*job.params, job.position, r);
    }
    needs = cuda::needs_of(draws, rows);
    stream_.to_device(at_.draws, draws, jobs.size() * sizeof(cuda::DrawRow));
    launch_head(head, hidden, rows);
    cuda::DrawInput input;
    input.logits = at_.logits;
    input.stride = head.output.outputs;
    input.vocab = config_.vocab_size;
    input.list = head.list;
    input.rows = at_.draws;
    input.row_count = rows;
    return input;
}

void CudaForward::draw(const CudaHead& head,
                       const float* hidden,
                       std::span<const DrawJob> jobs,
                       std::span<std::optional<TokenId>> tokens) {
    cuda::DrawNeeds needs;
    const cuda::DrawInput input = launch_jobs(head, hidden, jobs, needs);
    cuda::launch_draw(stream_, input, needs, at_.draw_scratch, at_.tokens);
    auto* drawn = draw_pinned_.as<std::int32_t>();
    stream_.to_host(drawn, at_.tokens, jobs.size() * sizeof(std::int32_t));
    stream_.finish();
    for (std::size_t r = 0; r < jobs.size(); ++r) {
        tokens[r] = drawn[r] < 0 ? std::nullopt : std::optional<TokenId>{drawn[r]};
    }
}

void CudaForward::draw_candidates(const CudaHead& head,
                                  const float* hidden,
                                  std::span<const DrawJob> jobs,
                                  std::span<std::vector<Candidate>> best) {
    int most = 1;
    for (const DrawJob& job : jobs) most = std::max(most, job.count);
    cuda::DrawNeeds needs;
    const cuda::DrawInput input = launch_jobs(head, hidden, jobs, needs);
    cuda::launch_candidates(stream_, input, needs, most, at_.draw_scratch, at_.lists);
    auto* lists = draw_pinned_.as<cuda::CandidateList>();
    stream_.to_host(lists, at_.lists, jobs.size() * sizeof(cuda::CandidateList));
    stream_.finish();
    for (std::size_t r = 0; r < jobs.size(); ++r) {
        best[r].clear();
        for (int i = 0; i < std::min(lists[r].count, jobs[r].count); ++i)
            best[r].push_back({lists[r].tokens[i], lists[r].log_probs[i]});
    }
}

}  // namespace paceline
