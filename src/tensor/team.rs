//! Teams: the invocations that together sum over the columns of some rows, in mat-vec kernels. A rule chooses their sizes;
//! autotuning compares them with others.

use super::Variant;
use super::exec::{lanes_defines, subgroup_lanes};
use super::quant::BLOCK;
use crate::gpu::{Capabilities, Define};

/// Invocations that together sum over the columns of some rows: the lanes of a subgroup, or several subgroups if rows are so long that
/// each lane would have many blocks.
pub(super) struct Team {
    lanes: Option<u32>,
    size: u32,
    workgroup: u32,
    /// Blocks of a row that the workgroup stages in its memory.
    staged: Option<u32>,
}

impl Team {
    /// On a GPU a read takes about as long as a thousand operations, so the fewest consecutive reads are best. On a CPU barriers cost
    /// more.
    pub fn for_columns(columns: usize, capabilities: &Capabilities) -> Self {
        const LEAST_WORKGROUP: u32 = 64;
        let lanes = subgroup_lanes(capabilities, 32);
        let Some(count) = lanes else {
            return Self { lanes, size: LEAST_WORKGROUP, workgroup: LEAST_WORKGROUP, staged: None };
        };
        let wanted = match columns / BLOCK {
            _ if capabilities.software => count,
            0..64 => 32,
            64..96 => 64,
            _ => 128,
        };
        let size = wanted.max(count);
        Self { lanes, size, workgroup: size.max(LEAST_WORKGROUP), staged: None }
    }

    /// The same in a workgroup of this number of invocations, if there are subgroups.
    pub fn in_workgroup(columns: usize, invocations: u32, capabilities: &Capabilities) -> Self {
        let team = Self::for_columns(columns, capabilities);
        Self { workgroup: if team.lanes.is_some() { invocations.max(team.size) } else { team.workgroup }, ..team }
    }

    /// For kernels of many rows that prepare their activations: several teams of a large workgroup share the prepared activations in
    /// workgroup memory, if there are subgroups and enough room.
    pub fn staged(columns: usize, capabilities: &Capabilities) -> Self {
        const STAGING_WORKGROUP: u32 = 256;
        let team = Self::for_columns(columns, capabilities);
        let fits = columns * 4 <= capabilities.max_workgroup_storage_size as usize * 3 / 4
            && capabilities.max_invocations_per_workgroup >= STAGING_WORKGROUP;
        match team.lanes {
            Some(lanes) if fits && !capabilities.software => Self {
                lanes: Some(lanes),
                size: lanes.max(32),
                workgroup: STAGING_WORKGROUP,
                staged: Some((columns / BLOCK) as u32),
            },
            _ => team,
        }
    }

    /// For norms of rows this long on a GPU: one token has one row, so more lanes with fewer reads each.
    pub fn for_long_rows(columns: usize, capabilities: &Capabilities) -> Option<Self> {
        const LONG: usize = 1024;
        const WORKGROUP: u32 = 256;
        (columns >= LONG && !capabilities.software).then(|| Self::of_workgroup(WORKGROUP, capabilities))
    }

    /// How many of a row's reads a lane begins before it waits for one.
    pub fn at_once(&self, reads: usize, capabilities: &Capabilities) -> Define {
        const MOST: usize = 8;
        let of_lane = reads.div_ceil(self.size as usize).clamp(1, MOST);
        Define::U32(if capabilities.software { 1 } else { of_lane as u32 })
    }

    /// All of a workgroup.
    pub fn of_workgroup(workgroup: u32, capabilities: &Capabilities) -> Self {
        Self { lanes: subgroup_lanes(capabilities, workgroup.min(32)), size: workgroup, workgroup, staged: None }
    }

    /// The team of a variant, which has the knobs of `candidates`.
    pub fn of(variant: &Variant, columns: usize, capabilities: &Capabilities) -> Self {
        let size = variant.get("team");
        Self {
            lanes: subgroup_lanes(capabilities, size.min(32)),
            size,
            workgroup: variant.get("workgroup"),
            staged: (variant.get("staged") == 1).then_some((columns / BLOCK) as u32),
        }
    }

    /// Teams to compare, on all known adapters: variants with the knobs `team` and `workgroup`.
    pub fn candidates(capabilities: &Capabilities) -> Vec<Variant> {
        let Some(lanes) = subgroup_lanes(capabilities, 32) else {
            // All of a workgroup sum together.
            return [32, 64, 128].map(|size| Variant::new(&[("team", size), ("workgroup", size)])).to_vec();
        };
        [(8, 64), (16, 64), (32, 64), (32, 128), (64, 64), (64, 128), (128, 128)]
            .into_iter()
            // Fewer than the lanes of a subgroup would not use the width of memory reads.
            .filter(|(team, workgroup)| *team >= lanes && *workgroup <= capabilities.max_invocations_per_workgroup)
            .map(|(team, workgroup)| Variant::new(&[("team", team), ("workgroup", workgroup)]))
            .collect()
    }

    /// The same, and if there is room also those that stage their activations, with the further knob `staged`.
    pub fn staged_candidates(columns: usize, capabilities: &Capabilities) -> Vec<Variant> {
        let plain = Self::candidates(capabilities).into_iter().map(|variant| variant.with("staged", 0));
        let fits = columns * 4 <= capabilities.max_workgroup_storage_size as usize * 3 / 4;
        let lanes = subgroup_lanes(capabilities, 32).filter(|_| fits);
        let staged = [(32, 128), (32, 256), (64, 256)].into_iter().filter(|(team, workgroup)| {
            lanes.is_some_and(|lanes| *team >= lanes) && *workgroup <= capabilities.max_invocations_per_workgroup
        });
        plain
            .chain(staged.map(|(team, size)| Variant::new(&[("team", team), ("workgroup", size), ("staged", 1)])))
            .collect()
    }

    /// For kernels whose workgroups compute the 16 pairs of rows of a block: as many teams as fit a workgroup, a power of two.
    pub fn of_blocks(self) -> Self {
        const PAIRS: u32 = 16;
        const MOST: u32 = 256;
        match self.lanes {
            Some(_) => Self { workgroup: (PAIRS * self.size).min(MOST.max(self.size)), staged: None, ..self },
            // All of a workgroup sum together.
            None => Self { staged: None, ..self },
        }
    }

    /// The number of teams in a workgroup.
    pub fn teams(&self) -> usize {
        (self.workgroup / self.size) as usize
    }

    pub fn defines(&self) -> Vec<(&'static str, Define)> {
        let mut defines = lanes_defines(self.workgroup, self.lanes);
        defines.push(("TEAM", Define::U32(self.size)));
        if self.lanes.is_some_and(|lanes| lanes < self.size) {
            defines.push(("TEAMS_OF_LANES", Define::Flag));
        }
        if let Some(blocks) = self.staged {
            defines.extend([("STAGED", Define::Flag), ("BLOCKS", Define::U32(blocks))]);
        }
        defines
    }
}
