//! A GPU context for native tests, on whatever adapter there is (lavapipe in continuous integration).

use rillm::tensor::{Context, Device, DeviceOptions};

pub fn context(subgroups: bool) -> Context {
    context_with(&DeviceOptions { without_subgroups: !subgroups, ..Default::default() })
}

pub fn context_with(options: &DeviceOptions) -> Context {
    let device = pollster::block_on(Device::request(options))
        .unwrap_or_else(|error| panic!("native tests need a Vulkan driver (on Debian: mesa-vulkan-drivers): {error}"));
    Context::new(device)
}
