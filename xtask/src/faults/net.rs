//! A network of members: one namespace for each, joined by a bridge, with the clients beside it.

use std::path::PathBuf;

use anyhow::Result;

use super::tool::run;

/// A station that nobody is: what is sent to it is lost without a word.
const NOBODY: &str = "02:00:00:00:00:ff";

/// The namespaces and what is cut between them.
#[derive(Debug)]
pub struct Net {
    members: usize,
}

/// The address of a member.
pub fn host(member: usize) -> String {
    format!("10.213.0.{}", member + 1)
}

/// The words before a program that runs in a member's namespace. It keeps its process id.
pub fn enter(member: usize) -> (PathBuf, Vec<String>) {
    (PathBuf::from("nsenter"), vec![format!("--net=/run/netns/flt{member}"), "--".to_owned()])
}

impl Net {
    /// Makes the bridge and the namespaces.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub async fn new(members: usize) -> Result<Net> {
        run("mkdir -p /run/netns").await?;
        // Names of namespaces are files: nobody else is to see them.
        run("mount -t tmpfs none /run/netns").await?;
        run("ip link set lo up").await?;
        run("ip link add fltbr type bridge").await?;
        run("ip addr add 10.213.0.254/24 dev fltbr").await?;
        run("ip link set fltbr up").await?;
        for at in 0..members {
            run(&format!("ip netns add flt{at}")).await?;
            run(&format!("ip link add fltv{at} type veth peer name eth0 netns flt{at}")).await?;
            run(&format!("ip link set fltv{at} master fltbr up")).await?;
            run(&format!("ip -n flt{at} addr add {}/24 dev eth0", host(at))).await?;
            run(&format!("ip -n flt{at} link set eth0 up")).await?;
            run(&format!("ip -n flt{at} link set lo up")).await?;
        }
        Ok(Net { members })
    }

    /// What `from` sends to `to` is lost from now on.
    ///
    /// # Errors
    /// If `ip` fails.
    pub async fn mute(&self, from: usize, to: usize) -> Result<()> {
        run(&format!("ip -n flt{from} neigh replace {} lladdr {NOBODY} dev eth0 nud permanent", host(to))).await?;
        Ok(())
    }

    /// Nothing goes between these two, either way.
    ///
    /// # Errors
    /// If `ip` fails.
    pub async fn cut(&self, one: usize, other: usize) -> Result<()> {
        self.mute(one, other).await?;
        self.mute(other, one).await
    }

    /// Nothing goes between a member of one group and a member of the other.
    ///
    /// # Errors
    /// If `ip` fails.
    pub async fn split(&self, here: &[usize], there: &[usize]) -> Result<()> {
        for one in here {
            for other in there {
                self.cut(*one, *other).await?;
            }
        }
        Ok(())
    }

    /// The member's cable is pulled: neither members nor clients reach it, and nothing is closed.
    ///
    /// # Errors
    /// If `ip` fails.
    pub async fn unplug(&self, member: usize) -> Result<()> {
        run(&format!("ip link set fltv{member} down")).await?;
        Ok(())
    }

    /// The cable is put back.
    ///
    /// # Errors
    /// If `ip` fails.
    pub async fn plug(&self, member: usize) -> Result<()> {
        run(&format!("ip link set fltv{member} up")).await?;
        Ok(())
    }

    /// The member's link carries so many kilobits a second each way, and drops what does not fit
    /// into a queue of a few packets.
    ///
    /// # Errors
    /// If `tc` fails.
    pub async fn narrow(&self, member: usize, kbit: u32) -> Result<()> {
        let shape = format!("root tbf rate {kbit}kbit burst 3000 limit 9000");
        run(&format!("tc qdisc replace dev fltv{member} {shape}")).await?;
        run(&format!("tc -n flt{member} qdisc replace dev eth0 {shape}")).await?;
        Ok(())
    }

    /// Everything is as it was at first.
    ///
    /// # Errors
    /// If `ip` fails.
    pub async fn mend(&self) -> Result<()> {
        for at in 0..self.members {
            self.plug(at).await?;
            run(&format!("ip -n flt{at} neigh flush dev eth0 nud permanent")).await?;
            // Fails if there is none.
            let _ = run(&format!("tc qdisc del dev fltv{at} root")).await;
            let _ = run(&format!("tc -n flt{at} qdisc del dev eth0 root")).await;
        }
        run("ip neigh flush dev fltbr").await?;
        Ok(())
    }
}
