// driver.hpp in a program that was built without CUDA.
#include "ipc/device/driver.hpp"

namespace paceline {

Result<std::unique_ptr<Driver>> open_driver(int device) {
    static_cast<void>(device);
    return Error{Errc::Unsupported, "this program was built without CUDA"};
}

Status exports_memory(int device) {
    static_cast<void>(device);
    return Error{Errc::Unsupported, "this program was built without CUDA"};
}

}  // namespace paceline
