//! The certificates of a cluster, and the kubeconfigs of its users.

use std::fs;
use std::path::PathBuf;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// A folder with certificates, keys and kubeconfigs.
pub(crate) struct Certificates {
    folder: PathBuf,
    authority: Issuer<'static, KeyPair>,
}

impl Certificates {
    pub(crate) fn new(folder: PathBuf) -> Self {
        fs::create_dir_all(&folder).unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "chaos");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        fs::write(folder.join("ca.crt"), certificate.pem()).unwrap();
        fs::write(folder.join("ca.key"), key.serialize_pem()).unwrap();
        let tokens = KeyPair::generate().unwrap();
        fs::write(folder.join("tokens.key"), tokens.serialize_pem()).unwrap();
        fs::write(folder.join("tokens.pub"), tokens.public_key_pem()).unwrap();
        Self { folder, authority: Issuer::new(params, key) }
    }

    pub(crate) fn path(&self, file: &str) -> String {
        self.folder.join(file).display().to_string()
    }

    /// Writes `NAME.crt` and `NAME.key` for a server with these names and addresses.
    pub(crate) fn server(&self, name: &str, names: &[&str]) {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(name, &params);
    }

    /// Writes `NAME.crt`, `NAME.key` and `NAME.kubeconfig` for a user.
    pub(crate) fn user(&self, name: &str, user: &str, group: &str, server: &str) -> PathBuf {
        let mut params = CertificateParams::new([]).unwrap();
        params.distinguished_name.push(DnType::CommonName, user);
        params.distinguished_name.push(DnType::OrganizationName, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(name, &params);
        let kubeconfig = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "chaos", "cluster": {"server": server, "certificate-authority": self.path("ca.crt")}}],
            "users": [{"name": name, "user": {
                "client-certificate": self.path(&format!("{name}.crt")),
                "client-key": self.path(&format!("{name}.key")),
            }}],
            "contexts": [{"name": "chaos", "context": {"cluster": "chaos", "user": name}}],
            "current-context": "chaos",
        });
        let path = self.folder.join(format!("{name}.kubeconfig"));
        fs::write(&path, kubeconfig.to_string()).unwrap();
        path
    }

    fn sign(&self, name: &str, params: &CertificateParams) {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.authority).unwrap();
        let write = |ending: &str, text: String| {
            fs::write(self.folder.join(format!("{name}.{ending}")), text).unwrap()
        };
        write("crt", certificate.pem());
        write("key", key.serialize_pem());
    }
}
