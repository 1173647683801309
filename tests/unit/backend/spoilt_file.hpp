// SpoiltFile: a copy of a fixture in which one number becomes NaN or infinite after the file was
// opened and checked.
//
// Owns a file in the folder for temporary files, and removes it. One thread; one object of a
// process at a time, since the name of the file has the process alone.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <unistd.h>

#include <doctest/doctest.h>

#include "model/weights/model_file.hpp"
#include "tests/support/source_tree.hpp"
#include "tests/unit/weights/gguf_builder.hpp"

namespace paceline::testing {

class SpoiltFile {
public:
    explicit SpoiltFile(const std::string& fixture)
        : path_{std::filesystem::temp_directory_path() /
                ("paceline-spoilt-" + std::to_string(::getpid()) + ".gguf")} {
        const std::string from = fixtures() + "/models/" + fixture + ".gguf";
        std::filesystem::copy_file(from, path_, std::filesystem::copy_options::overwrite_existing);
    }
    ~SpoiltFile() { std::filesystem::remove(path_); }
    SpoiltFile(const SpoiltFile&) = delete;
    SpoiltFile& operator=(const SpoiltFile&) = delete;
    [[nodiscard]] std::string path() const { return path_.string(); }

    /// Makes element 1 of a vector of layer 1 NaN: of the key bias if the model has one, else of
    /// the norm before the MLP. `file` is this file, opened. Returns the vector's name.
    [[nodiscard]] std::string spoil_a_vector(const ModelFile& file) const {
        const LayerTensors& layer = file.layer(1);
        const TensorView& tensor = layer.k_bias.has_value() ? *layer.k_bias : layer.ffn_norm;
        REQUIRE(tensor.type == StoredType::F32);
        const float nan = std::numeric_limits<float>::quiet_NaN();
        spoil(tensor, sizeof nan, std::as_bytes(std::span{&nan, 1}));
        return tensor.name;
    }

    /// Makes the scale of the second (or only) block of row 3 of a matrix of layer 1 infinite, of a
    /// type without scales a number of that row. Returns the matrix's name.
    [[nodiscard]] std::string spoil_a_matrix(const ModelFile& file) const {
        const TensorView& tensor = file.layer(1).down;
        const TypeTraits shape = traits(tensor.type);
        const bool has_two = tensor.row_bytes() > shape.block_bytes;
        const std::size_t at = 3 * tensor.row_bytes() + (has_two ? shape.block_bytes : 0);
        const float infinity = std::numeric_limits<float>::infinity();
        const std::uint16_t half = 0x7C00;
        const std::uint16_t bfloat = float_to_bfloat(infinity);
        const std::uint8_t power = 255;
        if (tensor.type == StoredType::F32) {
            spoil(tensor, at, std::as_bytes(std::span{&infinity, 1}));
        } else if (tensor.type == StoredType::MXFP4) {
            spoil(tensor, at, std::as_bytes(std::span{&power, 1}));
        } else {
            const bool is_bfloat = tensor.type == StoredType::BF16;
            const int scale = test::detail::half_places(tensor.type).scale;
            spoil(tensor, at + static_cast<std::size_t>(std::max(scale, 0)),
                  std::as_bytes(std::span{is_bfloat ? &bfloat : &half, 1}));
        }
        return tensor.name;
    }

private:
    void spoil(const TensorView& tensor, std::size_t byte, std::span<const std::byte> with) const {
        std::ifstream in{path_, std::ios::binary};
        const std::string bytes{std::istreambuf_iterator<char>{in}, {}};
        const std::string wanted(reinterpret_cast<const char*>(tensor.data), tensor.bytes);
        const std::size_t at = bytes.find(wanted);
        REQUIRE(at != std::string::npos);
        std::fstream out{path_, std::ios::binary | std::ios::in | std::ios::out};
        out.seekp(static_cast<std::streamoff>(at + byte));
        out.write(reinterpret_cast<const char*>(with.data()), std::ssize(with));
    }

    std::filesystem::path path_;
};

}  // namespace paceline::testing
