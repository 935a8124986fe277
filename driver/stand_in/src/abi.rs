//! Structures of `verbs.h` of rdma-core 44 on 64-bit machines that more than one library reads or fills. Names of fields are those of the
//! manual. Sizes and offsets were measured with the headers of Debian 12; the tests below hold them.

use std::ffi::c_int;

/// Declares structures as C lays them out, with fields that are as visible as they are.
#[macro_export]
macro_rules! structures {
    ($visibility:vis, $( $(#[$attribute:meta])* $name:ident { $($field:ident: $type:ty,)+ } )+) => {
        $(
            $(#[$attribute])*
            #[repr(C)]
            #[derive(Clone, Copy)]
            #[allow(missing_docs, reason = "the manual describes the fields")]
            $visibility struct $name { $($visibility $field: $type,)+ }
        )+
    };
}

/// Insists on the size of a structure, and on the offsets of fields, in bytes.
#[macro_export]
macro_rules! pin {
    ($type:ident, $bytes:literal; $($field:ident $offset:literal),*) => {
        assert_eq!(size_of::<$type>(), $bytes, stringify!($type));
        $( assert_eq!(
            std::mem::offset_of!($type, $field), $offset, concat!(stringify!($type), "::", stringify!($field))
        ); )*
    };
}

structures! {
    pub,
    /// `ibv_device_attr`.
    #[derive(Debug)]
    DeviceAttributes {
        fw_ver: [u8; 64],
        node_guid: [u8; 8],
        sys_image_guid: [u8; 8],
        max_mr_size: u64,
        page_size_cap: u64,
        vendor_id: u32,
        vendor_part_id: u32,
        hw_ver: u32,
        max_qp: c_int,
        max_qp_wr: c_int,
        device_cap_flags: u32,
        max_sge: c_int,
        max_sge_rd: c_int,
        max_cq: c_int,
        max_cqe: c_int,
        max_mr: c_int,
        max_pd: c_int,
        max_qp_rd_atom: c_int,
        max_ee_rd_atom: c_int,
        max_res_rd_atom: c_int,
        max_qp_init_rd_atom: c_int,
        max_ee_init_rd_atom: c_int,
        atomic_cap: c_int,
        max_ee: c_int,
        max_rdd: c_int,
        max_mw: c_int,
        max_raw_ipv6_qp: c_int,
        max_raw_ethy_qp: c_int,
        max_mcast_grp: c_int,
        max_mcast_qp_attach: c_int,
        max_total_mcast_qp_attach: c_int,
        max_ah: c_int,
        max_fmr: c_int,
        max_map_per_fmr: c_int,
        max_srq: c_int,
        max_srq_wr: c_int,
        max_srq_sge: c_int,
        max_pkeys: u16,
        local_ca_ack_delay: u8,
        phys_port_cnt: u8,
    }
    /// `ibv_port_attr`.
    #[derive(Debug, Default, PartialEq, Eq)]
    PortAttributes {
        state: c_int,
        max_mtu: c_int,
        active_mtu: c_int,
        gid_tbl_len: c_int,
        port_cap_flags: u32,
        max_msg_sz: u32,
        bad_pkey_cntr: u32,
        qkey_viol_cntr: u32,
        pkey_tbl_len: u16,
        lid: u16,
        sm_lid: u16,
        lmc: u8,
        max_vl_num: u8,
        sm_sl: u8,
        subnet_timeout: u8,
        init_type_reply: u8,
        active_width: u8,
        active_speed: u8,
        phys_state: u8,
        link_layer: u8,
        flags: u8,
        port_cap_flags2: u16,
    }
    /// `ibv_qp_cap`.
    #[derive(Debug, Default, PartialEq, Eq)]
    QueuePairCapacity {
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
    }
    /// `ibv_gid`, whose words of 64 bits give it their alignment.
    #[derive(Debug, Default, PartialEq, Eq)]
    Gid {
        words: [u64; 2],
    }
    /// `ibv_global_route`.
    #[derive(Debug, Default, PartialEq, Eq)]
    GlobalRoute {
        dgid: Gid,
        flow_label: u32,
        sgid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
    }
    /// `ibv_ah_attr`.
    #[derive(Debug, Default, PartialEq, Eq)]
    AddressAttributes {
        grh: GlobalRoute,
        dlid: u16,
        sl: u8,
        src_path_bits: u8,
        static_rate: u8,
        is_global: u8,
        port_num: u8,
    }
    /// `ibv_qp_attr`.
    #[derive(Debug, Default, PartialEq, Eq)]
    QueuePairAttributes {
        qp_state: c_int,
        cur_qp_state: c_int,
        path_mtu: c_int,
        path_mig_state: c_int,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        dest_qp_num: u32,
        qp_access_flags: u32,
        cap: QueuePairCapacity,
        ah_attr: AddressAttributes,
        alt_ah_attr: AddressAttributes,
        pkey_index: u16,
        alt_pkey_index: u16,
        en_sqd_async_notify: u8,
        sq_draining: u8,
        max_rd_atomic: u8,
        max_dest_rd_atomic: u8,
        min_rnr_timer: u8,
        port_num: u8,
        timeout: u8,
        retry_cnt: u8,
        rnr_retry: u8,
        alt_port_num: u8,
        alt_timeout: u8,
        rate_limit: u32,
    }
}

impl Gid {
    /// A GID of its 16 bytes, in wire order.
    pub fn new(bytes: [u8; 16]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = bytes;
        let words = [[a, b, c, d, e, f, g, h], [i, j, k, l, m, n, o, p]];
        Self { words: words.map(u64::from_ne_bytes) }
    }

    /// The 16 bytes, in wire order.
    pub fn bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.words[0].to_ne_bytes());
        bytes[8..].copy_from_slice(&self.words[1].to_ne_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_lie_as_the_headers_have_them() {
        pin!(QueuePairAttributes, 144; qp_state 0, cur_qp_state 4, path_mtu 8, path_mig_state 12, qkey 16,
            rq_psn 20, sq_psn 24, dest_qp_num 28, qp_access_flags 32, cap 36, ah_attr 56, alt_ah_attr 88,
            pkey_index 120, alt_pkey_index 122, en_sqd_async_notify 124, sq_draining 125, max_rd_atomic 126,
            max_dest_rd_atomic 127, min_rnr_timer 128, port_num 129, timeout 130, retry_cnt 131, rnr_retry 132,
            alt_port_num 133, alt_timeout 134, rate_limit 136);
        pin!(AddressAttributes, 32; grh 0, dlid 24, sl 26, src_path_bits 27, static_rate 28, is_global 29,
            port_num 30);
        pin!(GlobalRoute, 24; dgid 0, flow_label 16, sgid_index 20, hop_limit 21, traffic_class 22);
        pin!(DeviceAttributes, 232; fw_ver 0, node_guid 64, sys_image_guid 72, max_mr_size 80, page_size_cap 88,
            vendor_id 96, hw_ver 104, max_qp 108, max_qp_wr 112, device_cap_flags 116, max_sge 120,
            max_sge_rd 124, max_cq 128, max_cqe 132, max_mr 136, max_pd 140, max_qp_rd_atom 144,
            max_res_rd_atom 152, max_qp_init_rd_atom 156, atomic_cap 164, max_mw 176, max_ah 200, max_srq 212,
            max_srq_sge 220, max_pkeys 224, local_ca_ack_delay 226, phys_port_cnt 227);
        pin!(PortAttributes, 52; state 0, max_mtu 4, active_mtu 8, gid_tbl_len 12, port_cap_flags 16,
            max_msg_sz 20, bad_pkey_cntr 24, qkey_viol_cntr 28, pkey_tbl_len 32, lid 34, sm_lid 36, lmc 38,
            max_vl_num 39, sm_sl 40, subnet_timeout 41, init_type_reply 42, active_width 43, active_speed 44,
            phys_state 45, link_layer 46, flags 47, port_cap_flags2 48);
        pin!(QueuePairCapacity, 20; max_send_wr 0, max_recv_wr 4, max_send_sge 8, max_recv_sge 12,
            max_inline_data 16);
    }
}
