// VerifyJob: FinalVerify's part of a run's job: the layers of the last segment, and which
// candidates after them are accepted.
//
//     run_layers()   layers, and the target's tokens with them where the device draws them
//     verify()       the accepted path of each part, and scores of prompts (verifier.hpp)
//
// FinalVerify::prepare() fills it before the job is submitted, and reads the results after the job
// has ended. In between it is the job's. Owns what is verified, and the verifier.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "actors/segment/layer_job.hpp"
#include "actors/segment/verifier.hpp"
#include "model/device_sampler.hpp"

namespace paceline {

struct VerifyJob {
    VerifyJob(Backend& backend, VerifyOptions options)
        : verifier{backend, options}, head_rows{options.head_rows} {}

    /// Rows whose head is computed in the job, as far as is known.
    [[nodiscard]] std::uint32_t heads() const;
    /// `keep_hidden`: the hidden states are read after the layers as well.
    [[nodiscard]] RunOutcome run_layers(LayerJob& layers, bool keep_hidden);
    void verify();

    Verifier verifier;
    std::uint32_t head_rows;
    std::vector<VerifyPart> parts;  // of the run; verify() gives them their results
    std::vector<ScoredRows>
        prompts;  // rows of prompts whose log probabilities are wanted, likewise
    // Of each row of the run, where the device draws the target's tokens with the layers; else
    // empty.
    std::vector<DrawJob> draws;
    std::vector<std::optional<TokenId>> drawn;
};

}  // namespace paceline
